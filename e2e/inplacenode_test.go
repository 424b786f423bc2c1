//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machinefacts"
	"github.com/machine-controller-fleet/machine-controller-fleet/driver/simulated/cloudapi"
)

// updating is the behaviour of the agents on machines, and the timeout of updates.
func updating(result cloudapi.UpdateResult, timeout time.Duration) func(*v1alpha1.Machine) {
	return func(m *v1alpha1.Machine) {
		m.Spec.NodeTemplateSpec.Annotations = map[string]string{cloudapi.AnnotationUpdateResult: string(result)}
		m.Spec.MachineConfiguration = &v1alpha1.MachineConfiguration{MachineInPlaceUpdateTimeout: &metav1.Duration{Duration: timeout}}
	}
}

// selectForUpdate labels a Node as candidate for an update in place and selects it, as a user may.
func (s *space) selectForUpdate(node string) {
	s.Helper()
	s.patchNode(node, fmt.Sprintf(`{"metadata":{"labels":{%q:"true",%q:"true"}}}`, v1alpha1.LabelCandidateForUpdate, v1alpha1.LabelSelectedForUpdate))
}

// comesTo waits until a machine is in a phase and its Node in a stage of its update, and returns both.
func (s *space) comesTo(machine string, phase v1alpha1.MachinePhase, stage string) (m *v1alpha1.Machine, n *corev1.Node) {
	s.Helper()
	s.eventually(fmt.Sprintf("machine %s is %s and its Node %s", machine, phase, stage), func(ctx context.Context) (err error) {
		if m, err = s.api().Machines(s.name).Get(ctx, machine, metav1.GetOptions{}); err != nil {
			return err
		}
		if n, err = s.lab.Target.CoreV1().Nodes().Get(ctx, m.Labels[v1alpha1.LabelNode], metav1.GetOptions{}); err != nil {
			return err
		}
		if is := m.Status.CurrentStatus.Phase; is != phase || machinefacts.InPlaceStage(n) != stage {
			return fmt.Errorf("it is %s (%s), the Node %q", is, m.Status.LastOperation.Description, machinefacts.InPlaceStage(n))
		}
		return nil
	})
	return m, n
}

// isBackFromUpdate waits until nothing of an update is left on a Node, and it takes pods again.
func (s *space) isBackFromUpdate(machine string) {
	s.Helper()
	s.eventually("Node "+machine+" is schedulable again", func(ctx context.Context) error {
		n, err := s.lab.Target.CoreV1().Nodes().Get(ctx, machine, metav1.GetOptions{})
		if err != nil {
			return err
		}
		var wrong complaints
		for _, key := range []string{v1alpha1.LabelCandidateForUpdate, v1alpha1.LabelSelectedForUpdate, v1alpha1.LabelUpdateResult} {
			_, remaining := n.Labels[key]
			wrong.unless(!remaining, "it has the label %s", key)
		}
		wrong.unless(!n.Spec.Unschedulable && len(n.Spec.Taints) == 0, "cordoned: %v, taints %v", n.Spec.Unschedulable, n.Spec.Taints)
		wrong.unless(machinefacts.InPlaceStage(n) == v1alpha1.NodeReasonUpdateSuccessful, "its stage is %q", machinefacts.InPlaceStage(n))
		return wrong.err()
	})
}

// TestInPlaceUpdate updates three Nodes in place, whose agents succeed, fail, and do nothing. The first one begins when the test has seen
// that it may.
func TestInPlaceUpdate(t *testing.T) {
	t.Parallel()
	s := newSpace(t, shared(t), "inplace", "")
	s.workload()
	names := []string{s.name + "-good", s.name + "-bad", s.name + "-lazy"}
	s.createMachine(names[0], updating(cloudapi.UpdateNever, 20*time.Minute))
	s.createMachine(names[1], updating(cloudapi.UpdateFailed, 20*time.Minute))
	s.createMachine(names[2], updating(cloudapi.UpdateNever, lateUpdate))
	s.running("", len(names))
	vms := s.joined()
	for name, test := range map[string]func(s *space, machine string){"good": updateSucceeds, "bad": updateFails, "lazy": updateIsLate} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := s.in(t)
			test(s, s.name+"-"+name)
			s.isBackFromUpdate(s.name + "-" + name)
		})
	}
	t.Cleanup(func() {
		if t.Failed() {
			return
		}
		found, err := s.lab.Cloud.History(context.WithoutCancel(t.Context()), s.name)
		if err != nil || len(found) != len(vms) {
			t.Errorf("the cloud has made %d VMs for %d machines (%v): an update in place keeps them", len(found), len(vms), err)
		}
	})
}

// updateSucceeds updates a Node with pods: they are evicted before, and the VM stays.
func updateSucceeds(s *space, machine string) {
	s.podOn(machine, "slow", pause(), neverEnds)
	s.ready("slow", 1)
	s.selectForUpdate(machine)
	_, node := s.comesTo(machine, v1alpha1.MachineRunning, v1alpha1.NodeReasonSelectedForUpdate)
	s.describes(machine, "1 pod left")
	s.ends("slow")
	s.comesTo(machine, v1alpha1.MachineInPlaceUpdating, v1alpha1.NodeReasonReadyForUpdate)
	s.agentBecomes(machine, cloudapi.UpdateSuccessful)
	if _, err := s.lab.Target.CoreV1().Pods(s.name).Get(s.Context(), "slow", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		s.Errorf("the pod on a Node that is updated: want none, got %v", err)
	}
	_, after := s.comesTo(machine, v1alpha1.MachineRunning, v1alpha1.NodeReasonUpdateSuccessful)
	if after.UID != node.UID {
		s.Errorf("Node %s became another one", machine)
	}
	for _, reason := range []string{v1alpha1.EventInPlaceUpdating, v1alpha1.EventInPlaceUpdated, v1alpha1.EventNodeHealthy} {
		s.emits(machine, reason)
	}
	reported, err := s.eventsOf(s.Context(), machine)
	s.must(err)
	if slices.Contains(reported, v1alpha1.EventNodeUnhealthy) {
		s.Errorf("a Node that restarts for its update is reported as unhealthy: %v", reported)
	}
}

// updateFails: an update fails, and is retried when its cause is fixed.
func updateFails(s *space, machine string) {
	s.selectForUpdate(machine)
	m, _ := s.comesTo(machine, v1alpha1.MachineInPlaceUpdateFailed, v1alpha1.NodeReasonUpdateFailed)
	if op := m.Status.LastOperation; op.Type != v1alpha1.MachineOperationInPlaceUpdate || op.State != v1alpha1.MachineStateFailed {
		s.Errorf("last operation %+v", op)
	}
	s.describes(machine, "an injected fault")
	s.emits(machine, v1alpha1.EventInPlaceFailed)
	s.agentBecomes(machine, cloudapi.UpdateSuccessful)
	s.patchNode(machine, fmt.Sprintf(`{"metadata":{"labels":{%q:null}}}`, v1alpha1.LabelUpdateResult))
	s.comesTo(machine, v1alpha1.MachineRunning, v1alpha1.NodeReasonUpdateSuccessful)
}

// lateUpdate is the timeout of updateIsLate.
const lateUpdate = 10 * time.Second

// updateIsLate: no agent does the update until its timeout is over. In the first minute of a fleet, it ends no timeout.
func updateIsLate(s *space, machine string) {
	s.selectForUpdate(machine)
	m, _ := s.comesTo(machine, v1alpha1.MachineInPlaceUpdating, v1alpha1.NodeReasonReadyForUpdate)
	since := m.Status.CurrentStatus.LastUpdateTime
	m, _ = s.comesTo(machine, v1alpha1.MachineInPlaceUpdateFailed, v1alpha1.NodeReasonReadyForUpdate)
	if took := m.Status.CurrentStatus.LastUpdateTime.Sub(since.Time); took < lateUpdate {
		s.Errorf("the update has failed after %s, its timeout is %s", took, lateUpdate)
	}
	s.describes(machine, fmt.Sprintf("within the timeout of %s", lateUpdate))
	s.agentBecomes(machine, cloudapi.UpdateSuccessful)
	s.comesTo(machine, v1alpha1.MachineRunning, v1alpha1.NodeReasonUpdateSuccessful)
}

// agentBecomes changes what the agent of a machine does.
func (s *space) agentBecomes(machine string, result cloudapi.UpdateResult) {
	s.Helper()
	s.patch("machines", machine, fmt.Sprintf(`{"spec":{"nodeTemplate":{"metadata":{"annotations":{%q:%q}}}}}`, cloudapi.AnnotationUpdateResult, result))
	s.eventually("Node "+machine+" has the annotation", func(ctx context.Context) error {
		n, err := s.lab.Target.CoreV1().Nodes().Get(ctx, machine, metav1.GetOptions{})
		if err == nil && n.Annotations[cloudapi.AnnotationUpdateResult] != string(result) {
			err = fmt.Errorf("it has annotations %v", n.Annotations)
		}
		return err
	})
}

// TestMachinesWhoseUpdateFailsAreReplaced one after the other.
func TestMachinesWhoseUpdateFailsAreReplaced(t *testing.T) {
	t.Parallel()
	s := newSpace(t, shared(t), "inplace-failed", "")
	s.deploy("others", 4) // without them half of the machines would fail, and the circuit breaker open
	s.deploy("pool", 2, func(d *v1alpha1.MachineDeployment) {
		d.Spec.Template.Spec.NodeTemplateSpec.Annotations = map[string]string{cloudapi.AnnotationUpdateResult: string(cloudapi.UpdateFailed)}
		d.Spec.Template.Spec.MachineConfiguration = &v1alpha1.MachineConfiguration{MachineHealthTimeout: &metav1.Duration{Duration: 5 * time.Second}}
	})
	s.running("others", 4)
	s.running("pool", 2)
	victims, err := s.machines(t.Context(), "pool")
	s.must(err)
	film := s.film()
	var names []string
	for _, m := range victims {
		names = append(names, m.Name)
		s.selectForUpdate(m.Labels[v1alpha1.LabelNode])
	}
	for _, m := range victims {
		s.replaced("pool", m)
	}
	s.oneByOne(film, names)
}

// oneByOne waits until a film shows the deletion of all these machines, and checks that it never shows that of two at a time.
func (s *space) oneByOne(film *recording, names []string) {
	s.Helper()
	s.eventually("all of them are gone", func(context.Context) error {
		machines, moments := shown[*v1alpha1.Machine](s, film)
		leaving, gone := map[string]bool{}, 0
		for i, m := range machines {
			switch {
			case !slices.Contains(names, m.Name) || m.DeletionTimestamp == nil:
			case moments[i].gone:
				delete(leaving, m.Name)
				gone++
			default:
				leaving[m.Name] = true
			}
			if len(leaving) > 1 {
				s.Fatalf("these machines are deleted at the same time: %v", leaving)
			}
		}
		if gone != len(names) {
			return fmt.Errorf("%d machines of %v are gone", gone, names)
		}
		return nil
	})
}
