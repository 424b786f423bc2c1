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

// TestRollingUpdate replaces machines one by one: never more and never less than allowed. Nodes are marked during the rollout, and
// not after it.
func TestRollingUpdate(t *testing.T) {
	t.Parallel()
	s := newSpace(t, shared(t), "roll", "")
	s.deploy("pool", 3)
	s.running("pool", 3)
	s.progressing(corev1.ConditionTrue, v1alpha1.ReasonNewMachineSetAvailable)
	before := s.joined()
	within := s.watchLimits(3, 4)

	s.rollIt("second")
	s.eventually("old Nodes are marked", func(ctx context.Context) error {
		annotated, err := s.rolloutNodes(ctx)
		if err != nil {
			return err
		}
		for name := range before {
			if annotated[name] == "kept, tainted" {
				return nil
			}
		}
		return fmt.Errorf("Nodes are marked %v", annotated)
	})
	s.rolled("second", 3)
	within()
	for name := range s.joined() {
		if _, old := before[name]; old {
			t.Errorf("machine %s was not replaced", name)
		}
	}
	s.withoutRolloutNodes()

	s.remove("machinedeployments", "pool")
	s.gone()
}

// rolled waits until n machines of the template run, and no others are left.
func (s *space) rolled(template string, n int) {
	s.Helper()
	s.eventually(fmt.Sprintf("%d machines of the template %q run, and no others", n, template), func(ctx context.Context) error {
		machines, err := s.machines(ctx, "pool")
		if err != nil {
			return err
		}
		var wrong complaints
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
	s.concludes(v1alpha1.MachineDeploymentProgressing, status, reason)
}

// concludes waits until the MachineDeployment pool has a condition.
func (s *space) concludes(condition v1alpha1.MachineDeploymentConditionType, status corev1.ConditionStatus, reason string) {
	s.Helper()
	s.eventually(fmt.Sprintf("%s is %s because of %s", condition, status, reason), func(ctx context.Context) error {
		d, err := s.api().MachineDeployments(s.name).Get(ctx, "pool", metav1.GetOptions{})
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

// rolloutNodes returns what a rollout has written on the Nodes of the namespace's machines, by the machine's name, without Nodes that
// carry nothing.
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

// watchLimits checks every change of the machines of the namespace from now on, until within is called: at least least machines
// have to run, and at most most may exist.
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
				s.Errorf("%s %s: %d machines of which %d run, want at most %d and at least %d that run", change.Type, m.Name, len(machines), run, most, least)
			}
		}
	})
	return func() {
		stop()
		changes.Stop()
		watching.Wait()
	}
}
