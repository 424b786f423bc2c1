//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"maps"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
)

// TestMachineWithoutSet creates a Machine without an owner, with the shortest possible name.
func TestMachineWithoutSet(t *testing.T) {
	t.Parallel()
	s := newSpace(t, shared(t), "alone", "")
	s.createMachine("a")
	s.running("", 1)
	s.joined()
	s.noTokens()
	s.remove("machines", "a")
	s.gone()
}

// TestMachineSetWithoutDeployment: a MachineSet without an owner adopts a Machine without an owner.
func TestMachineSetWithoutDeployment(t *testing.T) {
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

// TestDeploymentAdoptsOrphanedSet deletes a MachineDeployment without its machines, like kubectl delete --cascade=orphan, and
// another one of the same name adopts them. Later it replaces them.
func TestDeploymentAdoptsOrphanedSet(t *testing.T) {
	t.Parallel()
	s := newSpace(t, shared(t), "comes-back", "")
	first := s.deploy("pool", 2)
	s.running("pool", 2)
	vms := s.joined()
	orphan := metav1.DeletePropagationOrphan
	s.must(s.api().MachineDeployments(s.name).Delete(t.Context(), "pool", metav1.DeleteOptions{PropagationPolicy: &orphan}))
	s.eventually("its MachineSet has no owner", func(ctx context.Context) error {
		_, err := s.api().MachineDeployments(s.name).Get(ctx, "pool", metav1.GetOptions{})
		if !apierrors.IsNotFound(err) {
			return fmt.Errorf("the MachineDeployment is still there: %w", err)
		}
		return s.onlySetOf(ctx, "")
	})
	second := s.deploy("pool", 2)
	s.eventually("its MachineSet belongs to the other one", func(ctx context.Context) error { return s.onlySetOf(ctx, second.UID) })
	s.progressing(corev1.ConditionTrue, v1alpha1.ReasonNewMachineSetAvailable)
	if after := s.joined(); first.UID == second.UID || !maps.Equal(after, vms) {
		t.Errorf("the VMs of machines were %v and are %v", vms, after)
	}
	s.rollIt("second")
	s.rolled("second", 2)
	s.remove("machinedeployments", "pool")
	s.gone()
}

// onlySetOf returns an error unless there is one MachineSet, with this owner; "" for none.
func (s *space) onlySetOf(ctx context.Context, deployment types.UID) error {
	sets, err := s.api().MachineSets(s.name).List(ctx, metav1.ListOptions{})
	if err != nil || len(sets.Items) != 1 {
		return fmt.Errorf("there are %d MachineSets: %w", len(sets.Items), err)
	}
	owner := types.UID("")
	if c := metav1.GetControllerOf(&sets.Items[0]); c != nil {
		owner = c.UID
	}
	if owner != deployment {
		return fmt.Errorf("it belongs to %q, want %q", owner, deployment)
	}
	return nil
}

// createSet creates a MachineSet of the namespace's class.
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

// TestNodeDeletedByHand: the machine whose Node a user deletes is replaced, and no other.
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
