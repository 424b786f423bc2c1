package bynamespace

import (
	"cmp"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"

	"github.com/machine-controller-fleet/machine-controller-fleet/internal/target/access"
)

// Selection selects the Secrets of a namespace that name its target cluster.
type Selection struct {
	// Secret is the name of the Secret with the kubeconfig, or with server, CA and credentials; ""
	// means that Labels select it.
	Secret string
	// Labels is a label selector. The newest Secret that it selects counts.
	Labels string
	// Token is the name of the Secret with the token in the place of a token file; "" means that there
	// is none.
	Token string
}

// main selects the Secret that names the cluster.
func (s Selection) main() selector { return selector{name: s.Secret, labels: s.Labels} }

// token selects the Secret with the token.
func (s Selection) token() selector { return selector{name: s.Token} }

// selector selects Secrets by a name, or by labels.
type selector struct{ name, labels string }

// field returns the field selector.
func (s selector) field() string {
	if s.name == "" {
		return ""
	}
	return fields.OneTermEqualSelector(metav1.ObjectNameField, s.name).String()
}

// String describes the Secrets for an error.
func (s selector) String() string {
	if s.name != "" {
		return "a Secret " + s.name
	}
	return "a Secret with the labels " + s.labels
}

// newest returns the newest Secret, nil if there is none.
func newest(all []*corev1.Secret) (found *corev1.Secret) {
	for _, secret := range all {
		found = newer(found, secret)
	}
	return found
}

// newer returns the newer one of two Secrets, of which a may be nil.
func newer(a, b *corev1.Secret) *corev1.Secret {
	if a != nil && cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), strings.Compare(a.Name, b.Name)) >= 0 {
		return a
	}
	return b
}

// accessOf returns what the Secrets of a namespace say; token may be nil. Errors: a Secret that is
// missing or invalid.
func (t *Targets) accessOf(namespace string, by selector, found, token *corev1.Secret) (access.Access, error) {
	if found == nil {
		return access.Access{}, fmt.Errorf("expected %s, got none; create it with a kubeconfig of the target cluster", by)
	}
	var with *access.Secret
	if token != nil {
		with = &access.Secret{Name: token.Name, Data: token.Data}
	}
	return t.cfg.Policy.Read(namespace, access.Secret{Name: found.Name, Data: found.Data}, with)
}
