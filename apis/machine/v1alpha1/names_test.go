package v1alpha1

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
)

func TestMayExist(t *testing.T) {
	for name, isName := range map[string]bool{
		"s": true, "a-1.b": true, strings.Repeat("a", 63): true, strings.Repeat("a", 253): true,
		"": false, ".": false, "..": false, "a/b": false, "/": false, "../../../watch/secrets": false, "%2e%2e": false, "a%2fb": false,
		"a?watch=true": false, "a#b": false, "A": false, "a b": false, "a\n": false, "a_b": false, "-a": false, "ä": false,
		strings.Repeat("a", 254): false, strings.Repeat("a", 1<<20): false,
	} {
		if got := MayExist(types.NamespacedName{Namespace: "n", Name: name}); got != isName {
			t.Errorf("name %.40q: %t, want %t", name, got, isName)
		}
		isNamespace := isName && len(name) <= 63 && !strings.Contains(name, ".")
		if got := MayExist(types.NamespacedName{Namespace: name, Name: "s"}); got != isNamespace {
			t.Errorf("namespace %.40q: %t, want %t", name, got, isNamespace)
		}
	}
}

// TestMayExistIsTheRuleOfKubernetes compares the short texts that have all that names may have.
func TestMayExistIsTheRuleOfKubernetes(t *testing.T) {
	texts := []string{""}
	for i := 0; len(texts[i]) < 5; i++ {
		for _, c := range []string{"a", "0", "-", ".", "Z"} {
			texts = append(texts, texts[i]+c)
		}
	}
	for _, text := range texts {
		name, namespace := MayExist(types.NamespacedName{Namespace: "n", Name: text}), MayExist(types.NamespacedName{Namespace: text, Name: "s"})
		if name != (len(validation.IsDNS1123Subdomain(text)) == 0) || namespace != (len(validation.IsDNS1123Label(text)) == 0) {
			t.Errorf("%q: name %t, namespace %t", text, name, namespace)
		}
	}
}

// A kubelet can write the annotation, and its value becomes part of requests.
func TestNodeWithAnImpossibleMachineNameIsNotBound(t *testing.T) {
	for ref, want := range map[string]bool{
		"n/m/u": true, "n/m.x/u": true,
		"": false, "n/m": false, "n/m/u/v": false, "/m/u": false, "n//u": false, "n/m/": false,
		"../m/u": false, "n/../u": false, "../../u": false, "n/m?x/u": false, "N/m/u": false, "n/%2e%2e/u": false,
	} {
		node := &metav1.ObjectMeta{Annotations: map[string]string{AnnotationMachine: ref}}
		if got, bound := MachineOf(node); bound != want || bound && got.String() != ref {
			t.Errorf("%q: %v, %t; want %t", ref, got, bound, want)
		}
	}
}
