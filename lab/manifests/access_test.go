package manifests

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"slices"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
)

// Without this right nothing that a deletion budget limits would begin.
func TestTheFleetMayWriteTheLeaseOfDeletionBudgets(t *testing.T) {
	documents := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(fleetControl)))
	granted := map[string]bool{}
	for {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		var role rbacv1.ClusterRole
		if err := errors.Join(err, yaml.Unmarshal(document, &role)); err != nil {
			t.Fatal(err)
		}
		if role.Kind != "ClusterRole" {
			continue
		}
		for _, rule := range role.Rules {
			named := len(rule.ResourceNames) == 0 || slices.Contains(rule.ResourceNames, v1alpha1.LeaseDeletions)
			for _, verb := range rule.Verbs {
				granted[verb] = granted[verb] || named && slices.Contains(rule.Resources, "leases")
			}
		}
	}
	for _, verb := range []string{"get", "create", "update"} {
		if !granted[verb] {
			t.Errorf("no ClusterRole grants %s of Lease %s", verb, v1alpha1.LeaseDeletions)
		}
	}
}
