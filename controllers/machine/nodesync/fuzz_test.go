package nodesync

import (
	"slices"
	"testing"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
)

// FuzzForgedAnnotations: regardless of what a kubelet writes into the annotations of its Node, an
// administrator's restricted label and taint stay, the Node gets what its machine requests, and it
// is written a few times at most.
func FuzzForgedAnnotations(f *testing.F) {
	const template, capacity = v1alpha1.AnnotationLastAppliedNodeTemplate, v1alpha1.AnnotationLastAppliedVirtualCapacity
	const label, taint = "node-restriction.kubernetes.io/tier", "example.com/quarantine"
	for _, seed := range [][4]string{
		{
			`{"metadata":{"labels":{"` + label + `":"gold"}},"spec":{"taints":[{"key":"` + taint + `","effect":"NoSchedule"}]}}`, `{"cpu":"1"}`,
			"n/m/other", "true",
		},
		{`{"metadata":{"annotations":{"` + v1alpha1.AnnotationMachine + `":"","` + template + `":""},"labels":{"` + v1alpha1.LabelSlot +
			`":"","` + v1alpha1.LabelMachineName + `":""}}}`, `{"a":"1","a":"2"}`, "", ""},
		{
			`{"spec":{"taints":[{},{"key":"` + taint + `"},{"key":"` + taint + `","effect":"NoSchedule"},null]}}`, `{"a":"1e99999"}`, "a/b",
			"2126-01-01T00:00:00Z",
		},
		{"null", "null", "//", "\x00"},
		{"[]", "[]", "n/m/u/x", "{"},
		{`{"metadata":null}`, `{"":""}`, "../../x", "[[[["},
	} {
		f.Add(seed[0], seed[1], seed[2], seed[3])
	}
	f.Fuzz(func(t *testing.T, lastTemplate, lastCapacity, machine, other string) {
		node, wanted := given()
		own := corev1.Taint{Key: "own", Value: "yes", Effect: corev1.TaintEffectNoExecute}
		wanted.Template.Labels, wanted.Template.Spec.Taints = map[string]string{"pool": "b", "own.kubernetes.io/x": "y"}, []corev1.Taint{own}
		wanted.Applied = Restricted(wanted.Template)
		node.Labels[label] = "gold"
		node.Spec.Taints = []corev1.Taint{{Key: taint, Value: "yes", Effect: corev1.TaintEffectNoSchedule}}
		for key, value := range map[string]string{
			template: lastTemplate, capacity: lastCapacity, v1alpha1.AnnotationMachine: machine,
			v1alpha1.AnnotationNotManaged: other, v1alpha1.AnnotationUpdateTo: other, v1alpha1.AnnotationApplied: other,
		} {
			if !utf8.ValidString(value) {
				t.Skip("the API server accepts no such value")
			}
			node.Annotations[key] = value
		}
		writes := 0
		for patch := next(node, wanted); patch != nil; patch = next(node, wanted) {
			if node = patched(t, node, patch); writes == 5 {
				t.Fatalf("it is written again and again: %v", patch.Body)
			}
			writes++
		}
		if node.Labels[label] != "gold" ||
			!slices.ContainsFunc(node.Spec.Taints, func(is corev1.Taint) bool { return is.Key == taint && is.Value == "yes" }) {
			t.Errorf("the administrator's label or taint is gone: %v %v", node.Labels, node.Spec.Taints)
		}
		if !wanted.IsTied(node) || node.Labels["pool"] != "b" || node.Labels["own.kubernetes.io/x"] != "y" || find(node.Spec.Taints, own) < 0 {
			t.Errorf("the Node lacks what its machine requests: %v %v %v", node.Labels, node.Annotations, node.Spec.Taints)
		}
	})
}
