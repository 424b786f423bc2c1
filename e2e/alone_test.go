//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
)

// TestMachineAlone has a Machine that nobody owns, with the shortest name that there is.
func TestMachineAlone(t *testing.T) {
	t.Parallel()
	s := newSpace(t, shared(t), "alone", "")
	s.createMachine("a")
	s.running("", 1)
	s.joined()
	s.noTokens()
	s.remove("machines", "a")
	s.gone()
}

// TestMachineSetAlone has a MachineSet that nobody owns adopt a Machine that nobody owns.
func TestMachineSetAlone(t *testing.T) {
	t.Parallel()
	s := newSpace(t, shared(t), "set-alone", "")
	orphan := s.createMachine(s.name+"-orphan", func(m *v1alpha1.Machine) { m.Labels = map[string]string{v1alpha1.LabelName: "pool"} })
	s.createMachine(s.name+"-stranger", func(m *v1alpha1.Machine) { m.Labels = map[string]string{v1alpha1.LabelName: "other"} })
	s.running("", 2)
	before := s.joined()

	set := s.createSet("pool", 2)
	s.running("pool", 2)
	after := s.joined()
	if after[orphan.Name] != before[orphan.Name] {
		t.Errorf("the adopted machine had VM %s and has %q", before[orphan.Name], after[orphan.Name])
	}
	if len(after) != 3 {
		t.Errorf("want one machine beside the adopted one and the stranger, got %v", after)
	}
	machines, err := s.machines(t.Context(), "")
	s.must(err)
	for _, m := range machines {
		owner := metav1.GetControllerOf(&m)
		if adopted := owner != nil && owner.UID == set.UID; adopted != (m.Labels[v1alpha1.LabelName] == "pool") {
			t.Errorf("machine %s, labels %v, is controlled by %v", m.Name, m.Labels, owner)
		}
	}

	s.remove("machinesets", "pool")
	s.remove("machines", s.name+"-stranger")
	s.gone()
}

// createSet makes a MachineSet of the namespace's class.
func (s *space) createSet(name string, replicas int32) *v1alpha1.MachineSet {
	s.Helper()
	labels := map[string]string{v1alpha1.LabelName: name}
	made, err := s.api().MachineSets(s.name).Create(s.Context(), &v1alpha1.MachineSet{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: s.name, Labels: labels},
		Spec: v1alpha1.MachineSetSpec{
			Replicas: replicas,
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: v1alpha1.MachineTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: simulatedMachine()},
		},
	}, metav1.CreateOptions{})
	s.must(err)
	return made
}

// TestNodeDeletedByHand replaces the machine whose Node somebody deletes, and no other.
func TestNodeDeletedByHand(t *testing.T) {
	t.Parallel()
	s := newSpace(t, shared(t), "node-deleted", "")
	s.deploy("pool", 2)
	s.running("pool", 2)
	before := s.joined()
	var doomed, spared string
	for name := range before {
		doomed, spared = spared, name
	}
	s.must(s.lab.Target.CoreV1().Nodes().Delete(t.Context(), doomed, metav1.DeleteOptions{}))
	s.eventually("machine "+doomed+" is replaced", func(ctx context.Context) error {
		machines, err := s.machines(ctx, "pool")
		if err != nil {
			return err
		}
		names := map[string]bool{}
		for _, m := range machines {
			names[m.Name] = true
		}
		if names[doomed] || !names[spared] || len(names) != 2 {
			return fmt.Errorf("there are %v", names)
		}
		return nil
	})
	s.running("pool", 2)
	if after := s.joined(); after[spared] != before[spared] {
		t.Errorf("machine %s had VM %s and has %q", spared, before[spared], after[spared])
	}
	s.remove("machinedeployments", "pool")
	s.gone()
}
