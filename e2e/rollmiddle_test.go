//go:build e2e

package e2e

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
)

// rolls creates the MachineDeployment pool with three machines of template "first", and rolls it to "second" until the first new
// machine exists.
func (s *space) rolls(change ...func(*v1alpha1.MachineDeployment)) (within func()) {
	s.Helper()
	s.deploy("pool", 3, append(change, func(d *v1alpha1.MachineDeployment) {
		d.Spec.Template.Annotations = map[string]string{"template": "first"}
	})...)
	s.running("pool", 3)
	s.progressing(corev1.ConditionTrue, v1alpha1.ReasonNewMachineSetAvailable)
	within = s.watchLimits(3, 4)
	s.rollIt("second")
	s.has("second", 1)
	return within
}

// has waits until there are at least n machines of a template.
func (s *space) has(template string, n int) {
	s.Helper()
	s.eventually(fmt.Sprintf("%d machines of template %q exist", n, template), func(ctx context.Context) error {
		found, err := s.templates(ctx)
		if err == nil && found[template] < n {
			err = fmt.Errorf("machines by template: %v", found)
		}
		return err
	})
}

// templates counts the machines of pool by their template.
func (s *space) templates(ctx context.Context) (map[string]int, error) {
	machines, err := s.machines(ctx, "pool")
	found := map[string]int{}
	for _, m := range machines {
		found[m.Annotations["template"]]++
	}
	return found, err
}

// TestRollBack rolls back in the middle of a rollout, which ends with the machines that have not been replaced.
func TestRollBack(t *testing.T) {
	t.Parallel()
	s := newSpace(t, shared(t), "back", "")
	within := s.rolls()
	before := s.standing("first")
	s.patch("machinedeployments", "pool", `{"spec":{"rollbackTo":{"revision":1}}}`)
	s.rolled("first", 3)
	within()
	s.withoutRolloutNodes()
	kept := s.standing("first")
	maps.DeleteFunc(kept, func(name string, _ bool) bool { return !before[name] })
	if len(kept) < len(before)-1 { // one may have been in deletion
		t.Errorf("of %v only %v are left, although they had the template of the rollback", before, kept)
	}
	d, err := s.api().MachineDeployments(s.name).Get(t.Context(), "pool", metav1.GetOptions{})
	s.must(err)
	if d.Spec.RollbackTo != nil || d.Annotations[v1alpha1.AnnotationRevision] != "3" {
		t.Errorf("rollbackTo is %v, the revision %s; want none, and 3", d.Spec.RollbackTo, d.Annotations[v1alpha1.AnnotationRevision])
	}
	s.remove("machinedeployments", "pool")
	s.gone()
}

// standing names the machines of a template that are not being deleted.
func (s *space) standing(template string) map[string]bool {
	s.Helper()
	machines, err := s.machines(s.Context(), "pool")
	s.must(err)
	names := map[string]bool{}
	for _, m := range machines {
		if m.Annotations["template"] == template && m.DeletionTimestamp == nil {
			names[m.Name] = true
		}
	}
	return names
}

// TestPausedDuringARollout: a paused rollout replaces nothing, is resized nevertheless, and continues when it is resumed.
func TestPausedDuringARollout(t *testing.T) {
	t.Parallel()
	s := newSpace(t, shared(t), "pause", "")
	within := s.rolls()
	s.patch("machinedeployments", "pool", `{"spec":{"paused":true}}`)
	s.progressing(corev1.ConditionUnknown, v1alpha1.ReasonDeploymentPaused)
	s.calms(3)
	within()
	before := s.joined()
	s.scale("pool", 4)
	s.calms(5)
	after := s.joined()
	for name := range before {
		if _, still := after[name]; !still {
			t.Errorf("machine %s was replaced while the deployment was paused", name)
		}
	}
	s.patch("machinedeployments", "pool", `{"spec":{"paused":false}}`)
	s.rolled("second", 4)
	s.remove("machinedeployments", "pool")
	s.gone()
}

// calms waits until there are at least n machines and all of them run.
func (s *space) calms(n int) {
	s.Helper()
	s.eventually(fmt.Sprintf("at least %d machines exist, and all run", n), func(ctx context.Context) error {
		machines, err := s.machines(ctx, "pool")
		if err != nil {
			return err
		}
		var wrong complaints
		wrong.unless(len(machines) >= n, "there are %d", len(machines))
		for _, m := range machines {
			wrong.unless(m.DeletionTimestamp == nil && m.Status.CurrentStatus.Phase == v1alpha1.MachineRunning, "%s is %s", m.Name, m.Status.CurrentStatus.Phase)
		}
		return wrong.err()
	})
}

// TestAnotherTemplateDuringARollout: the machines of the template in between are replaced like those of the first.
func TestAnotherTemplateDuringARollout(t *testing.T) {
	t.Parallel()
	s := newSpace(t, shared(t), "another", "")
	within := s.rolls(func(d *v1alpha1.MachineDeployment) { d.Spec.RevisionHistoryLimit = new(int32(1)) })
	s.rollIt("third")
	s.rolled("third", 3)
	within()
	s.withoutRolloutNodes()
	s.hasSets(2) // one old one is kept
	s.remove("machinedeployments", "pool")
	s.gone()
}

// hasSets waits until there are n MachineSets.
func (s *space) hasSets(n int) {
	s.Helper()
	s.eventually(fmt.Sprintf("there are %d MachineSets", n), func(ctx context.Context) error {
		sets, err := s.api().MachineSets(s.name).List(ctx, metav1.ListOptions{})
		if err == nil && len(sets.Items) != n {
			err = fmt.Errorf("there are %d MachineSets", len(sets.Items))
		}
		return err
	})
}

// TestDeletedDuringARollout leaves nothing behind.
func TestDeletedDuringARollout(t *testing.T) {
	t.Parallel()
	s := newSpace(t, shared(t), "deleted", "")
	s.rolls()()
	s.remove("machinedeployments", "pool")
	s.gone()
}

// TestRecreate: machines of two templates never exist at the same time.
func TestRecreate(t *testing.T) {
	t.Parallel()
	s := newSpace(t, shared(t), "recreate", "")
	s.deploy("pool", 3, func(d *v1alpha1.MachineDeployment) {
		d.Spec.Strategy.Type = v1alpha1.RecreateMachineDeploymentStrategyType
		d.Spec.Template.Annotations = map[string]string{"template": "first"}
	})
	s.running("pool", 3)
	s.rollIt("second")
	s.eventually("the machines are those of the second template", func(ctx context.Context) error {
		found, err := s.templates(ctx)
		if len(found) > 1 {
			s.Fatalf("at the same time there are machines of templates %v", found)
		}
		if err == nil {
			if diff := cmp.Diff(map[string]int{"second": 3}, found); diff != "" {
				err = errors.New(diff)
			}
		}
		return err
	})
	s.rolled("second", 3)
	s.withoutRolloutNodes()
	s.remove("machinedeployments", "pool")
	s.gone()
}

// TestStalledRolloutReportsItsCause: a stalled rollout is reported with its cause, until the cause has ended.
func TestStalledRolloutReportsItsCause(t *testing.T) {
	t.Parallel()
	s := newSpace(t, shared(t), "stalled", "")
	s.deploy("pool", 2, func(d *v1alpha1.MachineDeployment) { d.Spec.ProgressDeadlineSeconds = new(int32(10)) })
	s.running("pool", 2)
	s.progressing(corev1.ConditionTrue, v1alpha1.ReasonNewMachineSetAvailable)
	within := s.watchLimits(2, 3)
	s.patch("machinedeployments", "pool", `{"spec":{"template":{"spec":{"class":{"name":"missing"}}}}}`)
	s.concludes(v1alpha1.MachineDeploymentRolloutStalled, corev1.ConditionTrue, v1alpha1.ReasonMachineCreateFailed)
	s.progressing(corev1.ConditionFalse, v1alpha1.ReasonProgressDeadlineExceeded)
	s.patch("machinedeployments", "pool", `{"spec":{"rollbackTo":{}}}`)
	s.progressing(corev1.ConditionTrue, v1alpha1.ReasonNewMachineSetAvailable)
	within()
	s.running("pool", 2)
	d, err := s.api().MachineDeployments(s.name).Get(t.Context(), "pool", metav1.GetOptions{})
	s.must(err)
	for _, c := range d.Status.Conditions {
		if c.Type == v1alpha1.MachineDeploymentRolloutStalled {
			t.Errorf("it still reports that it is stalled: %v", c)
		}
	}
	s.remove("machinedeployments", "pool")
	s.gone()
}

// slot returns the slot of a MachineDeployment.
func (s *space) slot(name string) (slot int) {
	s.Helper()
	_, err := fmt.Sscan(s.deployment(name).Labels[v1alpha1.LabelSlot], &slot)
	s.must(err)
	return slot
}

// TestOwnerKilledDuringARollout: the next owner continues.
func TestOwnerKilledDuringARollout(t *testing.T) {
	t.Parallel()
	s := newSpace(t, fleetWithoutProxies(t), "killed", "")
	within := s.rolls()
	comesBack := s.losesOwner()
	s.rolled("second", 3)
	within()
	s.withoutRolloutNodes()
	s.allExported(3)
	comesBack()
	s.joined()
	s.allExported(3)
	s.remove("machinedeployments", "pool")
	s.gone()
}

// losesOwner kills the replica that holds the slot of pool.
func (s *space) losesOwner() (comesBack func()) {
	s.Helper()
	killed := s.killOwner(s.slot("pool"), func(owner) {})
	return func() { s.starts(killed.replica) }
}

// TestHandedOverDuringARollout moves the slot back and forth while machines are replaced.
func TestHandedOverDuringARollout(t *testing.T) {
	t.Parallel()
	s := fleetSpace(t, "moved", slotOfMoved)
	within := s.rolls()
	s.wanders(4)
	s.rolled("second", 3)
	within()
	s.withoutRolloutNodes()
	s.allExported(3)
	s.wanders(1)
	s.allExported(3)
	s.remove("machinedeployments", "pool")
	s.gone()
	s.exported("machine_deployment", "pool", -1)
}

// allExported waits until one replica exports the number of machines of pool, and one that of its set that has them.
func (s *space) allExported(machines int) {
	s.Helper()
	s.exported("machine_deployment", "pool", machines)
	d, err1 := s.api().MachineDeployments(s.name).Get(s.Context(), "pool", metav1.GetOptions{})
	sets, err2 := s.api().MachineSets(s.name).List(s.Context(), metav1.ListOptions{})
	s.must(errors.Join(err1, err2))
	current := mcmNewSet(d, sets.Items)
	if current == nil {
		s.Fatalf("none of the sets is the current one: %+v", sets.Items)
	}
	s.exported("machine_set", current.Name, machines)
}

// wanders hands the slot of pool over so many times.
func (s *space) wanders(times int) {
	s.Helper()
	slot := s.slot("pool")
	for range times {
		s.arrives(s.handOver(slot))
	}
}
