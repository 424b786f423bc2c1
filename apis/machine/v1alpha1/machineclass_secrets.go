package v1alpha1

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
)

// AnnotationSharedWith names the namespaces other than its own whose MachineClasses may use the
// Secret. The names are exact: there is no wildcard.
//
// On: Secrets. By: user. Value: names, separated by commas. See:
// operations/configure.md#which-secrets-a-machineclass-may-use.
const AnnotationSharedWith = FleetDomain + "shared-with"

// SecretKeys returns the names of the Secrets that the class names, each once: that of SecretRef,
// and then that of CredentialsSecretRef. A reference without a namespace means the class' own; one
// without a name means nothing. The names are as the class' author wrote them: MayExist decides
// which may be part of a request, and SharedWith whether the class may use the Secret.
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

// MayExist reports whether an API server may have an object with this name: the namespace is a
// label of DNS-1123, and the name a subdomain. A reference in a spec or an annotation is any text.
// Clients of metadata join it with the path of the request without a check, so that
// "../../../watch/secrets" would be another request than the one that was meant.
func MayExist(key types.NamespacedName) bool {
	// First: it may be a text of a MiB.
	if len(key.Namespace) > validation.DNS1123LabelMaxLength || len(key.Name) > validation.DNS1123SubdomainMaxLength {
		return false
	}
	if !isLabel(key.Namespace) {
		return false
	}
	for label := range strings.SplitSeq(key.Name, ".") {
		if !isLabel(label) {
			return false
		}
	}
	return true
}

// isLabel is validation.IsDNS1123Label without the length and the regular expression: each machine
// is asked for its Node many times, and each time for what the Node refers to.
func isLabel(text string) bool {
	for i := range len(text) {
		switch c := text[i]; {
		case 'a' <= c && c <= 'z', '0' <= c && c <= '9', c == '-' && 0 < i && i < len(text)-1:
		default:
			return false
		}
	}
	return text != ""
}

// SharedWith reports whether MachineClasses of a namespace may use a Secret with this metadata: the
// Secret is in that namespace, or names that namespace in AnnotationSharedWith. Otherwise a client
// that may write MachineClasses in one namespace could have the fleet read, hold and send the
// Secrets of all other namespaces.
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
