package scale

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/machinefacts"
)

func TestOutOfStep(t *testing.T) {
	template := v1alpha1.MachineSpec{
		Class:                v1alpha1.ClassSpec{Kind: "MachineClass", Name: "c"},
		NodeTemplateSpec:     v1alpha1.NodeTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"pool": "a"}}},
		MachineConfiguration: &v1alpha1.MachineConfiguration{MachineDrainTimeout: &metav1.Duration{Duration: time.Hour}},
	}
	// of is a machine as the set creates them, and then changed.
	of := func(change func(*v1alpha1.Machine)) *v1alpha1.Machine {
		m := &v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Name: "m", UID: "m"}, Spec: *template.DeepCopy()}
		m.Spec.ProviderID = "cloud:///i-1"
		change(m)
		return m
	}
	updated := func(w World) []*v1alpha1.Machine {
		if v := balance(w, machinefacts.Intents{}); v.Do == Update {
			return v.Machines
		}
		return nil
	}
	for _, tc := range []struct {
		name   string
		change func(*v1alpha1.Machine)
		in     bool // in step
	}{
		{"as it was created", func(*v1alpha1.Machine) {}, true},
		{"another nodeTemplate", func(m *v1alpha1.Machine) { m.Spec.NodeTemplateSpec.Labels = nil }, false},
		{"another configuration", func(m *v1alpha1.Machine) { m.Spec.MachineConfiguration = nil }, false},
		{"another kind of class", func(m *v1alpha1.Machine) { m.Spec.Class.Kind = "AWSMachineClass" }, false},
		{"another class, which needs another machine", func(m *v1alpha1.Machine) { m.Spec.Class.Name = "d" }, true},
		{"its own creation timeout", func(m *v1alpha1.Machine) {
			m.Annotations = map[string]string{v1alpha1.AnnotationEffectiveCreationTimeout: "5m"}
			m.Spec.MachineCreationTimeout = &metav1.Duration{Duration: 5 * time.Minute}
		}, true},
		{"failed", func(m *v1alpha1.Machine) {
			m.Spec.NodeTemplateSpec.Labels = nil
			m.Status.CurrentStatus.Phase = v1alpha1.MachineFailed
		}, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			set := &v1alpha1.MachineSet{Spec: v1alpha1.MachineSetSpec{Replicas: 1, Template: v1alpha1.MachineTemplateSpec{Spec: template}}}
			m := of(tc.change)
			before := m.DeepCopy()
			changed := updated(World{Set: set, Owned: []*v1alpha1.Machine{m}})
			if diff := cmp.Diff(before, m); diff != "" {
				t.Errorf("the machine that was given has changed:\n%s", diff)
			}
			if tc.in != (len(changed) == 0) {
				t.Fatalf("changed: %v", changed)
			}
			if tc.in {
				return
			}
			want := of(func(*v1alpha1.Machine) {})
			if diff := cmp.Diff(want.Spec, changed[0].Spec); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
			if again := updated(World{Set: set, Owned: changed}); len(again) > 0 {
				t.Error("it is out of step still")
			}
			tried := World{Set: set, Owned: []*v1alpha1.Machine{m}, Done: Done{Updated: map[types.UID]bool{m.UID: true}}}
			if again := updated(tried); len(again) > 0 {
				t.Error("it is tried twice in a pass")
			}
		})
	}
}
