//go:build e2e

package scale

import (
	"path/filepath"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// kubeconfig is the administrator's.
func (s *scene) kubeconfig() string { return filepath.Join(s.lab.Dir, "admin.kubeconfig") }

// token returns a token of a ServiceAccount.
func (s *scene) token(namespace, account string) string {
	s.t.Helper()
	created, err := s.lab.Control.CoreV1().ServiceAccounts(namespace).CreateToken(s.ctx, account,
		&authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		s.t.Fatal(err)
	}
	return created.Status.Token
}
