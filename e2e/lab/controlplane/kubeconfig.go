package controlplane

import (
	"fmt"

	"sigs.k8s.io/yaml"
)

type named map[string]any

// Kubeconfig returns a kubeconfig file for one user of one server. ca is the PEM of the authority
// behind the server.
func Kubeconfig(server string, ca []byte, user Pair) ([]byte, error) {
	out, err := yaml.Marshal(map[string]any{
		"apiVersion":      "v1",
		"kind":            "Config",
		"clusters":        []named{{"name": "lab", "cluster": named{"server": server, "certificate-authority-data": ca}}},
		"users":           []named{{"name": "lab", "user": named{"client-certificate-data": user.Cert, "client-key-data": user.Key}}},
		"contexts":        []named{{"name": "lab", "context": named{"cluster": "lab", "user": "lab"}}},
		"current-context": "lab",
	})
	if err != nil {
		return nil, fmt.Errorf("encoding a kubeconfig: %w", err)
	}
	return out, nil
}
