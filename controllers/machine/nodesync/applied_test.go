package nodesync

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
)

const (
	poolLabel  = "node-restriction.kubernetes.io/pool"
	tierLabel  = "node-restriction.kubernetes.io/tier"
	gpuTaint   = "gpu:NoSchedule"
	drainTaint = "drain:NoExecute"
)

var taintsByID = map[string]corev1.Taint{
	gpuTaint:   {Key: "gpu", Value: "a", Effect: corev1.TaintEffectNoSchedule},
	drainTaint: {Key: "drain", Effect: corev1.TaintEffectNoExecute},
}

func taints(ids ...string) (taints []corev1.Taint) {
	for _, id := range ids {
		taints = append(taints, taintsByID[id])
	}
	return taints
}

func TestRestrictedHasLabelsOfKubernetesAndAllTaints(t *testing.T) {
	template := &v1alpha1.NodeTemplateSpec{Spec: corev1.NodeSpec{Taints: taints(gpuTaint, drainTaint)}}
	template.Labels = map[string]string{tierLabel: "1", "pool": "a", poolLabel: "a", "example.com/kubernetes.io": "b"}
	template.Annotations = map[string]string{"a.kubernetes.io/b": "c"}
	want := Applied{Labels: []string{poolLabel, tierLabel}, Taints: []string{drainTaint, gpuTaint}}
	if diff := cmp.Diff(want, Restricted(template)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// A value that is on the Node already is the fleet's if the record of the machine has it, or that
// of Machine Controller Manager where that is trusted.
func TestAskedLeavesOutWhatOthersHaveAdded(t *testing.T) {
	const ofMCM = `{"metadata":{"labels":{"` + poolLabel + `":"a"}},"spec":{"taints":[{"key":"gpu","effect":"NoSchedule"}]}}`
	all := Applied{Labels: []string{poolLabel, tierLabel}, Taints: []string{drainTaint, gpuTaint}}
	withoutThose := Applied{Labels: []string{tierLabel}, Taints: []string{drainTaint}}
	for name, tc := range map[string]struct {
		bare, bound bool   // neither label nor taint is on the Node; it is bound to its machine
		record      string // on the Node
		applied     Applied
		want        Applied
	}{
		"nothing is on the Node": {bare: true, bound: true, want: all},
		"others have added some": {bound: true, want: withoutThose},
		"the fleet has added some": {
			bound: true, applied: Applied{Labels: []string{poolLabel}, Taints: []string{gpuTaint}}, want: all,
		},
		"the fleet has added the label": {
			bound: true, applied: Applied{Labels: []string{poolLabel}}, want: Applied{Labels: all.Labels, Taints: withoutThose.Taints},
		},
		"Machine Controller Manager has added": {record: ofMCM, want: all},
		"a kubelet has written a record":       {bound: true, record: ofMCM, want: withoutThose},
		"a kubelet has written a record and removed the binding": {
			record: ofMCM, applied: Applied{Taints: []string{drainTaint}}, want: withoutThose,
		},
	} {
		node, _ := given()
		if !tc.bound {
			node.Annotations = map[string]string{}
		}
		if !tc.bare {
			node.Labels[poolLabel], node.Spec.Taints = "a", taints(gpuTaint)
		}
		if tc.record != "" {
			metav1.SetMetaDataAnnotation(&node.ObjectMeta, v1alpha1.AnnotationLastAppliedNodeTemplate, tc.record)
		}
		template := &v1alpha1.NodeTemplateSpec{Spec: corev1.NodeSpec{Taints: taints(gpuTaint, drainTaint)}}
		template.Labels = map[string]string{poolLabel: "a", tierLabel: "1", "pool": "a"}
		if diff := cmp.Diff(tc.want, tc.applied.Asked(node, template)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// Of a template whose restricted part is partly an administrator's, all else is applied.
func TestApplyLeavesAnAdministratorsValues(t *testing.T) {
	node, wanted := given()
	node.Labels[poolLabel], node.Labels[tierLabel], node.Spec.Taints = "admin", "0", taints(drainTaint)
	wanted.Template.Labels = map[string]string{poolLabel: "a", tierLabel: "1", "pool": "a"}
	wanted.Template.Spec.Taints = taints(gpuTaint, drainTaint)
	wanted.Applied = Applied{Labels: []string{tierLabel}, Taints: []string{gpuTaint}}
	got := wanted.Apply(node)
	want := map[string]string{poolLabel: "admin", tierLabel: "1", "pool": "a"}
	for key, value := range want {
		if got.Labels[key] != value {
			t.Errorf("label %s is %q, want %q", key, got.Labels[key], value)
		}
	}
	if diff := cmp.Diff(taints(drainTaint, gpuTaint), got.Spec.Taints); diff != "" {
		t.Errorf("taints (-want +got):\n%s", diff)
	}
	const record = `{"metadata":{"labels":{"` + tierLabel +
		`":"1","pool":"a"}},"spec":{"taints":[{"key":"gpu","value":"a","effect":"NoSchedule"}]}}`
	if got := got.Annotations[v1alpha1.AnnotationLastAppliedNodeTemplate]; got != record {
		t.Errorf("the record is %s, want %s", got, record)
	}
}

func TestAppliedOfBothIsSortedAndEachOnce(t *testing.T) {
	got := Applied{Labels: []string{tierLabel}, Taints: []string{gpuTaint}}.With(Applied{
		Labels: []string{poolLabel, tierLabel}, Taints: []string{drainTaint, gpuTaint},
	})
	want := Applied{Labels: []string{poolLabel, tierLabel}, Taints: []string{drainTaint, gpuTaint}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestAppliedCoversAndIsEmpty(t *testing.T) {
	label, taint := Applied{Labels: []string{poolLabel}}, Applied{Taints: []string{gpuTaint}}
	both := label.With(taint)
	for name, tc := range map[string]struct {
		a, b    Applied
		covers  bool
		isEmpty bool // a
	}{
		"nothing, of nothing":       {covers: true, isEmpty: true},
		"nothing, of a label":       {b: label, isEmpty: true},
		"nothing, of a taint":       {b: taint, isEmpty: true},
		"a label, of nothing":       {a: label, covers: true},
		"a taint, of nothing":       {a: taint, covers: true},
		"a label, of both":          {a: label, b: both},
		"a taint, of both":          {a: taint, b: both},
		"both, of both":             {a: both, b: both, covers: true},
		"both, of another label":    {a: both, b: Applied{Labels: []string{tierLabel}}},
		"both, of another taint":    {a: both, b: Applied{Taints: []string{drainTaint}}},
		"both, of a label of those": {a: both, b: label, covers: true},
	} {
		if got := tc.a.Covers(tc.b); got != tc.covers {
			t.Errorf("%s: covers: %t, want %t", name, got, tc.covers)
		}
		if got := tc.a.IsEmpty(); got != tc.isEmpty {
			t.Errorf("%s: empty: %t, want %t", name, got, tc.isEmpty)
		}
	}
}
