package v1alpha1

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// AnnotationSharedWith on a Secret names, separated by commas, the namespaces other than its own whose MachineClasses may
// use it. The names are exact: there is no wildcard.
const AnnotationSharedWith = FleetDomain + "shared-with"

// SecretKeys returns the names of the Secrets that the class names, each once: that of SecretRef, and then that of
// CredentialsSecretRef. A reference without a namespace means the class' own; one without a name means nothing. Whether the
// class may use a Secret is for SharedWith to decide.
func (c *MachineClass) SecretKeys() []types.NamespacedName {
	var keys []types.NamespacedName
	for _, ref := range []*corev1.SecretReference{c.SecretRef, c.CredentialsSecretRef} {
		if ref == nil || ref.Name == "" {
			continue
		}
		key := types.NamespacedName{Namespace: ref.Namespace, Name: ref.Name}
		if key.Namespace == "" {
			key.Namespace = c.Namespace
		}
		if !slices.Contains(keys, key) {
			keys = append(keys, key)
		}
	}
	return keys
}

// SharedWith reports whether MachineClasses of a namespace may use a Secret with this metadata: the Secret is in that
// namespace, or names it in AnnotationSharedWith. Whoever may write MachineClasses in one namespace could otherwise have the
// fleet read, hold and send the Secrets of all others.
func SharedWith(secret metav1.Object, namespace string) bool {
	if secret.GetNamespace() == namespace {
		return true
	}
	for name := range strings.SplitSeq(secret.GetAnnotations()[AnnotationSharedWith], ",") {
		if name = strings.TrimSpace(name); name != "" && name == namespace {
			return true
		}
	}
	return false
}
