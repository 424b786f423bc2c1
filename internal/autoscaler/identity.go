package autoscaler

import (
	"crypto/x509"
	"fmt"
	"net/url"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
)

// identity is a client: a ServiceAccount, which need not exist.
type identity struct{ namespace, name string }

// serviceAccount is the prefix of the user names of ServiceAccounts.
const serviceAccount = "system:serviceaccount:"

// user returns the user name of the client in the control cluster.
func (i identity) user() string { return serviceAccount + i.namespace + ":" + i.name }

// groups returns the groups that the API server gives to a ServiceAccount.
func (i identity) groups() []string {
	return []string{"system:serviceaccounts", "system:serviceaccounts:" + i.namespace, "system:authenticated"}
}

// identityOf returns the client that a certificate names: by its one URI, which is
// spiffe://<domain>/ns/<namespace>/sa/<name>, or by its common name, which is the user name of a
// ServiceAccount. Errors: it names none, or two.
func identityOf(certificate *x509.Certificate) (identity, error) {
	var named []identity
	for _, uri := range certificate.URIs {
		is, ok := ofURI(uri)
		if !ok {
			return identity{}, fmt.Errorf("expected the URI spiffe://<domain>/ns/<namespace>/sa/<name> in the client's certificate, got %.200q", uri)
		}
		named = append(named, is)
	}
	if is, ok := ofUser(certificate.Subject.CommonName); ok {
		named = append(named, is)
	}
	if len(named) == 0 {
		return identity{}, fmt.Errorf("expected a client's certificate with the common name %s<namespace>:<name>, "+
			"or with the URI spiffe://<domain>/ns/<namespace>/sa/<name>, got the common name %.200q and no URI", serviceAccount,
			certificate.Subject.CommonName)
	}
	for _, other := range named[1:] {
		if other != named[0] {
			return identity{}, fmt.Errorf("expected a client's certificate that names one ServiceAccount, got %s and %s",
				named[0].user(), other.user())
		}
	}
	return named[0], nil
}

func ofUser(user string) (is identity, ok bool) {
	rest, ok := strings.CutPrefix(user, serviceAccount)
	namespace, name, found := strings.Cut(rest, ":")
	return existing(namespace, name, ok && found)
}

func ofURI(uri *url.URL) (is identity, ok bool) {
	parts := strings.Split(uri.Path, "/")
	const namespace, name, count = 2, 4, 5
	if uri.Scheme != "spiffe" || uri.Host == "" || len(parts) != count || parts[namespace-1] != "ns" || parts[name-1] != "sa" {
		return identity{}, false
	}
	return existing(parts[namespace], parts[name], true)
}

// existing returns the identity if a ServiceAccount of the name can exist: the names become part of
// requests.
func existing(namespace, name string, ok bool) (identity, bool) {
	if !ok || !v1alpha1.MayExist(types.NamespacedName{Namespace: namespace, Name: name}) {
		return identity{}, false
	}
	return identity{namespace: namespace, name: name}, true
}
