package decide

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
)

func TestUnmanaged(t *testing.T) {
	machine := func(namespace, name, node string) *v1alpha1.Machine {
		return &v1alpha1.Machine{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{v1alpha1.LabelNode: node}},
		}
	}
	bound := func(ref string) func(*corev1.Node) {
		return func(n *corev1.Node) { n.Annotations = map[string]string{v1alpha1.AnnotationMachine: ref} }
	}
	named := func(n *corev1.Node) { n.Labels = map[string]string{v1alpha1.LabelMachineName: "m"} }
	finalizer := func(n *corev1.Node) { n.Finalizers = []string{v1alpha1.NodeFinalizerName} }
	deleted := func(n *corev1.Node) { n.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)} }
	none := func(*corev1.Node) {}
	for _, tc := range []struct {
		name     string
		node     func(*corev1.Node)
		machines []*v1alpha1.Machine
		partial  bool
		want     bool
	}{
		{"of a control plane", none, []*v1alpha1.Machine{machine("served", "m", "another")}, false, true},
		{"of a control plane that a tenant's machine names", none, []*v1alpha1.Machine{machine("served", "m", "n")}, false, false},
		{"a machine has its name", none, []*v1alpha1.Machine{machine("served", "n", "")}, false, false},
		{"it names a machine", named, []*v1alpha1.Machine{machine("served", "m", "")}, false, false},
		{"it names a machine that is gone", named, []*v1alpha1.Machine{machine("served", "other", "")}, false, true},
		{"machines without a Node", none, []*v1alpha1.Machine{machine("served", "m", "")}, false, true},
		{"bound to a machine", bound("served/m/u"), []*v1alpha1.Machine{machine("served", "m", "")}, false, false},
		{"bound to a machine that is gone", bound("served/m/u"), nil, false, true},
		{
			"bound to a machine that is gone, and another namespace has one of that name", bound("served/m/u"),
			[]*v1alpha1.Machine{machine("other", "m", "n")},
			false, true,
		},
		{"bound to a machine that is gone, in a namespace of another manager", bound("other/m/u"), nil, false, false},
		{"bound by an invalid annotation", bound("served/m"), nil, false, true},
		{"being deleted", deleted, nil, false, false},
		{"with our finalizer", finalizer, nil, false, true},
		{
			"another manager has machines, and may have added our finalizer", finalizer,
			[]*v1alpha1.Machine{machine("other", "m", "")},
			false,
			false,
		},
		{
			"another manager has machines, and may have named one that is gone", named, []*v1alpha1.Machine{machine("other", "o", "")}, false, false,
		},
		{"another manager has machines, and none may be its own", none, []*v1alpha1.Machine{machine("other", "m", "")}, false, true},
		{
			"another manager has the first of the machines", finalizer,
			[]*v1alpha1.Machine{machine("other", "o", ""), machine("served", "m", "")},
			false, false,
		},
		{"another manager may have machines that cannot be read", finalizer, nil, true, false},
		{"another manager may have machines that cannot be read, and none may be its own", none, nil, true, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			all := NewMachines(func(namespace string) bool { return namespace == "served" }, tc.partial)
			for _, m := range tc.machines {
				all.Add(m)
			}
			node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}}
			tc.node(node)
			if got := all.Unmanaged(node); got != tc.want {
				t.Errorf("unmanaged: %t, want %t", got, tc.want)
			}
		})
	}
}

func TestIsAnnotated(t *testing.T) {
	for value, want := range map[string]bool{"1": true, "": false, "0": false} {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{v1alpha1.AnnotationNotManaged: value}}}
		if got := IsAnnotated(node); got != want {
			t.Errorf("annotation %q: %t, want %t", value, got, want)
		}
	}
}
