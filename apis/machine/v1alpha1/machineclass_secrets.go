package v1alpha1

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// SecretKeys returns the names of the Secrets that the class is made of, each once: that of SecretRef, and then that of
// CredentialsSecretRef, whose data is laid over it. A reference without a namespace means the class' own; one without a
// name means nothing.
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
