package v1alpha1

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

func TestSecretKeys(t *testing.T) {
	key := func(namespace, name string) types.NamespacedName {
		return types.NamespacedName{Namespace: namespace, Name: name}
	}
	for name, tc := range map[string]struct {
		secret, credentials *corev1.SecretReference
		want                []types.NamespacedName
	}{
		"none":             {},
		"without a name":   {&corev1.SecretReference{Namespace: "a"}, nil, nil},
		"in its namespace": {&corev1.SecretReference{Name: "s"}, nil, []types.NamespacedName{key("own", "s")}},
		"in another":       {&corev1.SecretReference{Name: "s", Namespace: "a"}, nil, []types.NamespacedName{key("a", "s")}},
		"one for both": {
			&corev1.SecretReference{Name: "s"}, &corev1.SecretReference{Name: "s", Namespace: "own"}, []types.NamespacedName{key("own", "s")},
		},
		"two": {
			&corev1.SecretReference{Name: "s"}, &corev1.SecretReference{Name: "c"}, []types.NamespacedName{key("own", "s"), key("own", "c")},
		},
		"credentials only":    {nil, &corev1.SecretReference{Name: "c"}, []types.NamespacedName{key("own", "c")}},
		"text that is a path": {&corev1.SecretReference{Name: "../s"}, nil, []types.NamespacedName{key("own", "../s")}},
	} {
		class := &MachineClass{ObjectMeta: metav1.ObjectMeta{Namespace: "own"}, SecretRef: tc.secret, CredentialsSecretRef: tc.credentials}
		if got := class.SecretKeys(); !slices.Equal(got, tc.want) {
			t.Errorf("%s: %v, want %v", name, got, tc.want)
		}
	}
}

func TestSharedWith(t *testing.T) {
	for name, tc := range map[string]struct {
		shared, namespace string
		want              bool
	}{
		"its own namespace":       {"", "own", true},
		"another":                 {"", "a", false},
		"one that is named":       {"a", "a", true},
		"one of several":          {"b,a ,c", "a", true},
		"with spaces":             {" b,\ta\n", "a", true},
		"one of a similar name":   {"ab,ba,A", "a", false},
		"a pattern":               {"*,.*,a*", "a", false},
		"no namespace":            {",", "", false},
		"separated by spaces":     {"a b", "a", false},
		"its own, and others are": {"a", "own", true},
	} {
		secret := &metav1.ObjectMeta{Namespace: "own", Annotations: map[string]string{AnnotationSharedWith: tc.shared}}
		if got := SharedWith(secret, tc.namespace); got != tc.want {
			t.Errorf("%s: %t, want %t", name, got, tc.want)
		}
	}
}
