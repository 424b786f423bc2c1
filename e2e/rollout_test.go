//go:build e2e

package e2e

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/harness"
)

// rollIt changes the template of the MachineDeployment pool, so that its machines are replaced.
func (s *space) rollIt(to string) {
	s.Helper()
	s.patch("machinedeployments", "pool", fmt.Sprintf(`{"spec":{"template":{"metadata":{"annotations":{"template":%q}}}}}`, to))
}

// TestRollingUpdate: a user rolls three machines to another template, pauses that in its middle,
// adds a machine, resumes, and rolls back in the middle. There are never more machines than
// allowed, and never fewer that run. While it is paused none is replaced, and those that still have
// the template of the roll-back stay. Nodes are marked during the rollout, and not after it.
func TestRollingUpdate(t *testing.T) {
	t.Parallel()
	s := newSpace(t, shared(t), "roll", "")
	s.deploy("pool", 3, func(d *v1alpha1.MachineDeployment) {
		d.Spec.Template.Annotations = map[string]string{"template": "first"}
	})
	s.running("pool", 3)
	s.progressing(corev1.ConditionTrue, v1alpha1.ReasonNewMachineSetAvailable)
	old := s.joined()
	within := s.watchLimits(3, 4)

	s.rollIt("second")
	s.has("second", 1)
	s.eventually("old Nodes are marked", func(ctx context.Context) error {
		annotated, err := s.rolloutNodes(ctx)
		if err != nil {
			return err
		}
		for name := range old {
			if annotated[name] == "kept, tainted" {
				return nil
			}
		}
		return fmt.Errorf("Nodes are marked %v", annotated)
	})
	s.patch("machinedeployments", "pool", `{"spec":{"paused":true}}`)
	s.progressing(corev1.ConditionUnknown, v1alpha1.ReasonDeploymentPaused)
	s.setsRest()
	before := s.joined()
	within()
	s.scale("pool", 4)
	s.running("pool", 5)
	after := s.joined()
	for name, vm := range before {
		if after[name] != vm {
			t.Errorf("machine %s was replaced while the MachineDeployment was paused", name)
		}
	}

	within = s.watchLimits(4, 5)
	s.patch("machinedeployments", "pool", `{"spec":{"paused":false}}`)
	s.has("second", 2)
	standing := s.standing("first")
	s.patch("machinedeployments", "pool", `{"spec":{"rollbackTo":{"revision":1}}}`)
	s.rolled("first", 4)
	within()
	s.withoutRolloutNodes()
	kept := slices.DeleteFunc(s.standing("first"), func(name string) bool { return !slices.Contains(standing, name) })
	if len(kept) < len(standing)-1 { // one may have been in deletion
		t.Errorf("of %v only %v are left, although they had the template of the roll-back", standing, kept)
	}
	if d := s.deployment("pool"); d.Spec.RollbackTo != nil || d.Annotations[v1alpha1.AnnotationRevision] != "3" {
		t.Errorf("rollbackTo is %v, the revision %s; want none, and 3", d.Spec.RollbackTo, d.Annotations[v1alpha1.AnnotationRevision])
	}
	s.remove("machinedeployments", "pool")
	s.gone()
}

// has waits until there are at least n machines of a template.
func (s *space) has(template string, n int) {
	s.Helper()
	s.eventually(fmt.Sprintf("%d machines of template %q exist", n, template), func(ctx context.Context) error {
		machines, err := s.machines(ctx, "pool")
		found := map[string]int{}
		for _, m := range machines {
			found[m.Annotations["template"]]++
		}
		if err == nil && found[template] < n {
			err = fmt.Errorf("machines by template: %v", found)
		}
		return err
	})
}

// standing names the machines of a template that are not being deleted.
func (s *space) standing(template string) (names []string) {
	s.Helper()
	machines, err := s.machines(s.Context(), "pool")
	s.must(err)
	for _, m := range machines {
		if m.Annotations["template"] == template && m.DeletionTimestamp == nil {
			names = append(names, m.Name)
		}
	}
	return names
}

// setsRest waits until all MachineSets have as many machines as they want, and all of these run.
func (s *space) setsRest() {
	s.Helper()
	s.eventually("all MachineSets rest", func(ctx context.Context) error {
		sets, err := s.api().MachineSets(s.name).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		var wrong deviations
		for _, set := range sets.Items {
			n, is := set.Spec.Replicas, set.Status
			wrong.unless(is.ObservedGeneration == set.Generation && is.Replicas == n && is.ReadyReplicas == n,
				"%s should have %d, generation %d: %+v",
				set.Name, n, set.Generation, is)
		}
		return wrong.err()
	})
}

// rolled waits until n machines of the template run, and no others are left.
func (s *space) rolled(template string, n int) {
	s.Helper()
	s.eventually(fmt.Sprintf("%d machines of the template %q run, and no others", n, template), func(ctx context.Context) error {
		machines, err := s.machines(ctx, "pool")
		if err != nil {
			return err
		}
		var wrong deviations
		wrong.unless(len(machines) == n, "there are %d machines", len(machines))
		for _, m := range machines {
			wrong.unless(m.Annotations["template"] == template && m.Status.CurrentStatus.Phase == v1alpha1.MachineRunning,
				"%s: template %q, phase %q, %s", m.Name, m.Annotations["template"], m.Status.CurrentStatus.Phase, m.Status.LastOperation.Description)
		}
		return wrong.err()
	})
	s.progressing(corev1.ConditionTrue, v1alpha1.ReasonNewMachineSetAvailable)
}

// progressing waits for a reason of the condition Progressing of the MachineDeployment pool.
func (s *space) progressing(status corev1.ConditionStatus, reason string) {
	s.Helper()
	s.concludes("pool", v1alpha1.MachineDeploymentProgressing, status, reason)
}

// concludes waits until a MachineDeployment has a condition.
func (s *space) concludes(name string, condition v1alpha1.MachineDeploymentConditionType, status corev1.ConditionStatus, reason string) {
	s.Helper()
	s.eventually(fmt.Sprintf("%s of %s is %s because of %s", condition, name, status, reason), func(ctx context.Context) error {
		d, err := s.api().MachineDeployments(s.name).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		for _, c := range d.Status.Conditions {
			if c.Type == condition && c.Status == status && c.Reason == reason && c.Message != "" && d.Status.ObservedGeneration == d.Generation {
				return nil
			}
		}
		return fmt.Errorf("conditions are %v", d.Status.Conditions)
	})
}

// rolloutNodes returns what a rollout has written on the Nodes of the namespace's machines, by the
// machine's name, without Nodes that carry nothing.
func (s *space) rolloutNodes(ctx context.Context) (map[string]string, error) {
	machines, err1 := s.machines(ctx, "")
	nodes, err2 := s.lab.Target.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err := errors.Join(err1, err2); err != nil {
		return nil, err
	}
	of := map[string]string{}
	for _, m := range machines {
		of[m.Labels[v1alpha1.LabelNode]] = m.Name
	}
	annotated := map[string]string{}
	for _, n := range nodes.Items {
		name, ours := of[n.Name]
		if !ours {
			continue
		}
		_, kept := n.Annotations[v1alpha1.AnnotationScaleDownDisabled]
		_, byUs := n.Annotations[v1alpha1.AnnotationScaleDownDisabledByUs]
		tainted := slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Key == v1alpha1.TaintPreferNoSchedule })
		switch {
		case kept && byUs && tainted:
			annotated[name] = "kept, tainted"
		case kept && byUs:
			annotated[name] = "kept"
		case kept || byUs || tainted:
			annotated[name] = fmt.Sprintf("%v, taints %v", n.Annotations, n.Spec.Taints)
		}
	}
	return annotated, nil
}

// withoutRolloutNodes waits until no Node carries anything of a rollout.
func (s *space) withoutRolloutNodes() {
	s.Helper()
	s.eventually("Nodes are not marked any more", func(ctx context.Context) error {
		annotated, err := s.rolloutNodes(ctx)
		if err == nil && len(annotated) > 0 {
			return fmt.Errorf("these are %v", annotated)
		}
		return err
	})
}

// watchLimits checks every change of the machines of the namespace from now on, until within is
// called: at least least machines have to run, and at most most may exist.
func (s *space) watchLimits(least, most int) (within func()) {
	s.Helper()
	ctx, stop := context.WithCancel(s.Context())
	list, err := s.api().Machines(s.name).List(ctx, metav1.ListOptions{})
	s.must(err)
	changes, err := harness.Watch(ctx, list.ResourceVersion, s.api().Machines(s.name).Watch)
	s.must(err)
	machines := map[string]*v1alpha1.Machine{}
	for i := range list.Items {
		machines[list.Items[i].Name] = &list.Items[i]
	}
	var watching sync.WaitGroup
	watching.Go(func() {
		for change := range changes.ResultChan() {
			m, ok := change.Object.(*v1alpha1.Machine)
			if !ok {
				if ctx.Err() == nil { // else it was cancelled, which may be reported as an error
					s.Errorf("watch of the machines: %v", change.Object)
				}
				return
			}
			machines[m.Name] = m
			if change.Type == watch.Deleted {
				delete(machines, m.Name)
			}
			run := 0
			for m := range maps.Values(machines) {
				if m.Status.CurrentStatus.Phase == v1alpha1.MachineRunning && m.DeletionTimestamp == nil {
					run++
				}
			}
			if run < least || len(machines) > most {
				s.Errorf("%s %s: %d machines of which %d run, want at most %d and at least %d that run",
					change.Type, m.Name, len(machines), run, most, least)
			}
		}
	})
	return func() {
		stop()
		changes.Stop()
		watching.Wait()
	}
}
