package stamp

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	machinev1alpha1 "github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
)

func TestStand(t *testing.T) {
	machine := func(name, set string, change ...func(m *machinev1alpha1.Machine)) *machinev1alpha1.Machine {
		m := &machinev1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)}}
		if set != "" {
			m.OwnerReferences = []metav1.OwnerReference{{Kind: KindSet, Name: set, UID: types.UID(set), Controller: new(true)}}
		}
		for _, f := range change {
			f(m)
		}
		return m
	}
	gone := func(m *machinev1alpha1.Machine) { deleted(m) }
	hasFailed := func(m *machinev1alpha1.Machine) { m.Status.CurrentStatus.Phase = machinev1alpha1.MachineFailed }
	machines := []*machinev1alpha1.Machine{
		machine("old", "a"), machine("new", "b"), machine("boots", "b"), machine("leaves", "b", gone), machine("left", "b", gone),
		machine("failed", "b", hasFailed), machine("failed-early", "b", hasFailed), machine("selected", "b"), machine("lone", ""),
	}
	nodeOf := func(m *machinev1alpha1.Machine) *corev1.Node {
		if slices.Contains([]string{"boots", "left", "failed-early"}, m.Name) {
			return nil
		}
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "of-" + m.Name, Labels: map[string]string{}}}
		if m.Name == "selected" {
			node.Labels[machinev1alpha1.LabelSelectedForUpdate] = "true"
		}
		return node
	}
	names := func(set map[string]bool) string {
		var all []string
		for name := range set {
			all = append(all, strings.TrimPrefix(name, "of-"))
		}
		slices.Sort(all)
		return strings.Join(all, " ")
	}
	for name, tc := range map[string]struct {
		roll Roll
		held string
	}{
		"replacing":                {Roll{Replaces: true, New: "b"}, "old selected"},
		"replacing, without a set": {Roll{Replaces: true}, "failed leaves new old selected"},
		"not replacing":            {Roll{New: "b"}, "selected"},
	} {
		s := Stand(machines, tc.roll, nodeOf)
		if s.Absent != 1 || names(s.Leaving) != "failed leaves" || names(s.Held) != tc.held || len(s.Nodes) != 6 {
			t.Errorf("%s: %d absent, leaving %q, held %q, %d Nodes", name, s.Absent, names(s.Leaving), names(s.Held), len(s.Nodes))
		}
	}
}
