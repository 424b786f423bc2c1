package machine

import (
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/driver"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/machinefacts"
)

// labelNode sets a label on the machine's Node, as a user or the agent; "" removes it.
func (b *bench) labelNode(key, value string) {
	b.Helper()
	b.changeNode(func(n *corev1.Node) {
		if n.Labels[key] = value; value == "" {
			delete(n.Labels, key)
		}
	})
}

// selects selects the Node of a running machine for an update in place, as a user.
func (b *bench) selects() {
	b.Helper()
	b.labelNode(v1alpha1.LabelCandidateForUpdate, "true")
	b.labelNode(v1alpha1.LabelSelectedForUpdate, "true")
}

// isUpdated creates a machine, and waits until its Node is to be updated.
func (b *bench) isUpdated() {
	b.Helper()
	b.create()
	b.becomes(v1alpha1.MachineRunning, time.Minute)
	b.selects()
	b.becomes(v1alpha1.MachineInPlaceUpdating, 2*time.Second)
	b.stageIs(v1alpha1.NodeReasonReadyForUpdate)
}

func (b *bench) stageIs(want string) {
	b.Helper()
	if is := machinefacts.InPlaceStage(b.node()); is != want {
		b.Fatalf("the Node says %q, want %q; the machine says %q", is, want, b.operation())
	}
}

func TestANodeIsUpdatedInPlace(t *testing.T) {
	onBench(t, func(b *bench) {
		b.create()
		b.becomes(v1alpha1.MachineRunning, time.Minute)
		b.pod("web")
		b.pod("proxy", owned("DaemonSet"))
		b.labelNode(v1alpha1.LabelCandidateForUpdate, "true")
		b.pass(time.Hour)
		b.stageIs(v1alpha1.NodeReasonCandidateForUpdate)
		if b.node().Spec.Unschedulable || b.evicted["web"] > 0 {
			t.Fatalf("cordoned: %v, evicted: %v before the Node was selected", b.node().Spec.Unschedulable, b.evicted)
		}
		b.labelNode(v1alpha1.LabelSelectedForUpdate, "true")
		b.pass(grace / 2)
		b.stageIs(v1alpha1.NodeReasonSelectedForUpdate)
		b.becomes(v1alpha1.MachineRunning, 0)
		b.takeOver(time.Second)
		b.becomes(v1alpha1.MachineInPlaceUpdating, grace)
		b.stageIs(v1alpha1.NodeReasonReadyForUpdate)
		node := b.node()
		if !node.Spec.Unschedulable || b.evicted["web"] != 1 || b.evicted["proxy"] != 0 ||
			!slices.Contains(node.Finalizers, v1alpha1.NodeFinalizerName) {
			t.Errorf("cordoned: %v, evicted: %v, finalizers: %v; want a Node that is empty and held",
				node.Spec.Unschedulable, b.evicted, node.Finalizers)
		}

		b.setReady(corev1.ConditionUnknown) // it restarts
		b.pass(10 * time.Minute)
		b.becomes(v1alpha1.MachineInPlaceUpdating, 0)
		b.labelNode(v1alpha1.LabelUpdateResult, v1alpha1.UpdateResultSuccessful)
		b.pass(time.Minute)
		b.becomes(v1alpha1.MachineInPlaceUpdateSuccessful, 0)
		b.stageIs(v1alpha1.NodeReasonUpdateSuccessful)
		b.setReady(corev1.ConditionTrue)
		b.becomes(v1alpha1.MachineRunning, time.Second)
		b.pass(time.Second)
		b.isBack()
		if deleted := b.cloud.Calls(driver.OpDelete); len(deleted) > 0 {
			t.Errorf("the VM is deleted: %v", deleted)
		}
	})
}

// The template for which the Node would have been updated is taken back: neither Node nor Machine
// shows that any more.
func TestANodeThatIsNoCandidateAnyMoreLosesTheCondition(t *testing.T) {
	onBench(t, func(b *bench) {
		b.create()
		b.becomes(v1alpha1.MachineRunning, time.Minute)
		b.labelNode(v1alpha1.LabelCandidateForUpdate, "true")
		b.pass(time.Minute)
		b.stageIs(v1alpha1.NodeReasonCandidateForUpdate)
		b.labelNode(v1alpha1.LabelCandidateForUpdate, "")
		b.pass(time.Minute)
		b.stageIs("")
		conditions := b.get().Status.Conditions
		if len(conditions) == 0 ||
			slices.ContainsFunc(conditions, func(c corev1.NodeCondition) bool { return c.Type == v1alpha1.NodeInPlaceUpdate }) {
			t.Errorf("conditions of the machine: %+v", conditions)
		}
	})
}

// isBack checks that the Node takes part again, when its critical components are ready.
func (b *bench) isBack() {
	b.Helper()
	node := b.node()
	b.stageIs(v1alpha1.NodeReasonUpdateSuccessful)
	for _, key := range []string{v1alpha1.LabelCandidateForUpdate, v1alpha1.LabelSelectedForUpdate, v1alpha1.LabelUpdateResult} {
		if _, left := node.Labels[key]; left {
			b.Errorf("the Node still has the label %s", key)
		}
	}
	want := []corev1.Taint{{Key: v1alpha1.TaintCriticalComponentsNotReady, Effect: corev1.TaintEffectNoSchedule}}
	if node.Spec.Unschedulable || !slices.Equal(node.Spec.Taints, want) {
		b.Errorf("cordoned: %v, taints %v; want only %v", node.Spec.Unschedulable, node.Spec.Taints, want)
	}
	if drains := b.process.drains; drains.Len() > 0 {
		b.Errorf("the process is still about %d drains", drains.Len())
	}
}

// A machine that is in a set which its machines leave keeps what the controllers of
// MachineDeployments move it by.
func TestTheResultStaysUntilTheMachineHasLeftItsOldSet(t *testing.T) {
	onBench(t, func(b *bench) {
		sets := b.server.Machines().MachineSets("n")
		old, err := sets.Create(b.Context(), &v1alpha1.MachineSet{ObjectMeta: metav1.ObjectMeta{
			Namespace: "n", Name: "old", Labels: map[string]string{v1alpha1.LabelScaleUpDisabled: "true"},
		}}, metav1.CreateOptions{})
		b.must(err)
		b.create(func(m *v1alpha1.Machine) {
			m.OwnerReferences = []metav1.OwnerReference{{Kind: "MachineSet", Name: "old", UID: old.UID, Controller: new(true)}}
		})
		b.becomes(v1alpha1.MachineRunning, time.Minute)
		b.selects()
		b.becomes(v1alpha1.MachineInPlaceUpdating, 2*time.Second)
		b.labelNode(v1alpha1.LabelUpdateResult, v1alpha1.UpdateResultSuccessful)
		b.becomes(v1alpha1.MachineRunning, 2*time.Second)
		b.pass(time.Hour)
		if node := b.node(); node.Labels[v1alpha1.LabelUpdateResult] != v1alpha1.UpdateResultSuccessful || !node.Spec.Unschedulable {
			t.Fatalf("cordoned: %v, labels %v, and the machine is in its old set", node.Spec.Unschedulable, node.Labels)
		}
		_, err = sets.Patch(b.Context(), "old", types.MergePatchType,
			fmt.Appendf(nil, `{"metadata":{"labels":{%q:null}}}`, v1alpha1.LabelScaleUpDisabled), metav1.PatchOptions{})
		b.must(err)
		b.pass(time.Second)
		b.isBack()
	})
}

func TestTheDrainBeforeAnUpdateIsForcedWhenItsTimeIsOver(t *testing.T) {
	onBench(t, func(b *bench) {
		b.addBlockingBudget()
		b.create(drainTimeout(20 * time.Minute))
		b.becomes(v1alpha1.MachineRunning, time.Minute)
		b.pod("web", labelled("held"))
		b.labelNode(v1alpha1.LabelCandidateForUpdate, "true")
		b.pass(time.Hour) // which is not part of the drain's time
		b.labelNode(v1alpha1.LabelSelectedForUpdate, "true")
		b.reportsSoon("held by PodDisruptionBudget a/never")
		last := b.get().Status.LastOperation
		if last.Type != v1alpha1.MachineOperationDrainNode || last.State != v1alpha1.MachineStateFailed {
			t.Errorf("last operation %+v", last)
		}
		b.pass(19 * time.Minute)
		b.becomes(v1alpha1.MachineRunning, 0)
		b.becomes(v1alpha1.MachineInPlaceUpdating, 3*time.Minute)
		b.reportsSoon("was ended by force, because the time for the drain is over")
	})
}

func TestTheLabelForcesTheDrainBeforeAnUpdate(t *testing.T) {
	onBench(t, func(b *bench) {
		b.addBlockingBudget()
		b.create()
		b.becomes(v1alpha1.MachineRunning, time.Minute)
		b.pod("web", labelled("held"))
		b.selects()
		b.reportsSoon("held by PodDisruptionBudget a/never")
		b.server.Merge("machines", "n", "m", fmt.Sprintf(`{"metadata":{"labels":{%q:"True"}}}`, v1alpha1.LabelForceDrain))
		b.becomes(v1alpha1.MachineInPlaceUpdating, time.Minute)
		b.reportsSoon("because the machine has the label force-deletion")
	})
}

func TestWithdrawnSelectionEndsTheDrain(t *testing.T) {
	onBench(t, func(b *bench) {
		b.addBlockingBudget()
		b.create()
		b.becomes(v1alpha1.MachineRunning, time.Minute)
		b.pod("web", labelled("held"))
		b.selects()
		b.reportsSoon("held by PodDisruptionBudget a/never")
		b.labelNode(v1alpha1.LabelSelectedForUpdate, "")
		b.reportsSoon("not selected for an in-place update any more")
		b.stageIs(v1alpha1.NodeReasonCandidateForUpdate)
		b.pass(3 * time.Hour)
		if node := b.node(); node.Spec.Unschedulable || len(node.Spec.Taints) > 0 {
			t.Errorf("cordoned: %v, taints %v", node.Spec.Unschedulable, node.Spec.Taints)
		}
		if b.target.Get("pods", "a", "web") == nil {
			t.Error("the pod is gone")
		}
		if drains := b.process.drains; drains.Len() > 0 {
			t.Errorf("the process is still about %d drains", drains.Len())
		}
	})
}

func TestMachineWithFailedUpdateIsReplacedAndStaysFailed(t *testing.T) {
	for name, fails := range map[string]func(b *bench){
		"the agent reports it": func(b *bench) {
			b.annotateNode(v1alpha1.AnnotationUpdateFailedReason, "the disk is full")
			b.labelNode(v1alpha1.LabelUpdateResult, v1alpha1.UpdateResultFailed)
			b.becomes(v1alpha1.MachineInPlaceUpdateFailed, time.Second)
			b.stageIs(v1alpha1.NodeReasonUpdateFailed)
			b.reportsSoon("could not be updated in place: the disk is full")
		},
		"the agent reports nothing": func(b *bench) {
			if took := b.becomes(v1alpha1.MachineInPlaceUpdateFailed, 21*time.Minute); took < 19*time.Minute {
				b.Errorf("the update has failed after %s", took)
			}
			b.stageIs(v1alpha1.NodeReasonUpdateFailed)
		},
	} {
		t.Run(name, func(t *testing.T) {
			onBench(t, func(b *bench) {
				b.isUpdated()
				fails(b)
				b.takeOver(time.Second)
				if took := b.becomes(v1alpha1.MachineFailed, 11*time.Minute); took < 9*time.Minute {
					t.Errorf("the machine is given up after %s", took)
				}
				b.pass(time.Hour)
				b.becomes(v1alpha1.MachineFailed, 0)
				if last := b.get().Status.LastOperation; last.Type != v1alpha1.MachineOperationHealthCheck {
					t.Errorf("last operation %+v", last)
				}
			})
		})
	}
}

// The agent reports nothing in time, and then a success: a user has corrected the failure.
func TestAnUpdateThatSucceedsLateCounts(t *testing.T) {
	onBench(t, func(b *bench) {
		b.isUpdated()
		b.becomes(v1alpha1.MachineInPlaceUpdateFailed, 21*time.Minute)
		b.labelNode(v1alpha1.LabelUpdateResult, v1alpha1.UpdateResultSuccessful)
		b.becomes(v1alpha1.MachineRunning, 2*time.Second)
		b.pass(time.Second)
		b.isBack()
	})
}

// A user corrects what has kept the agent from it, and removes the result from the Node, also where
// the agent has not reported it.
func TestAnUpdateThatHasFailedIsTriedAgain(t *testing.T) {
	for name, fails := range map[string]func(b *bench){
		"the agent reports it": func(b *bench) {
			b.labelNode(v1alpha1.LabelUpdateResult, v1alpha1.UpdateResultFailed)
			b.becomes(v1alpha1.MachineInPlaceUpdateFailed, time.Second)
		},
		"the agent reports nothing": func(b *bench) {
			b.becomes(v1alpha1.MachineInPlaceUpdateFailed, 21*time.Minute)
			b.pass(time.Minute)
		},
	} {
		t.Run(name, func(t *testing.T) {
			onBench(t, func(b *bench) {
				b.isUpdated()
				fails(b)
				b.labelNode(v1alpha1.LabelUpdateResult, "")
				b.becomes(v1alpha1.MachineInPlaceUpdating, 2*time.Second)
				b.stageIs(v1alpha1.NodeReasonReadyForUpdate)
				b.labelNode(v1alpha1.LabelUpdateResult, v1alpha1.UpdateResultSuccessful)
				b.becomes(v1alpha1.MachineRunning, 2*time.Second)
				b.pass(time.Second)
				b.isBack()
			})
		})
	}
}

func TestAMachineIsDeletedWhileItsNodeIsUpdated(t *testing.T) {
	onBench(t, func(b *bench) {
		b.isUpdated()
		b.pod("tolerant")
		b.delete()
		b.pass(2 * grace)
		if b.get() != nil || b.evicted["tolerant"] != 1 || len(b.left()) > 1 {
			t.Errorf("the machine is %v, evicted %v, left %v", b.get(), b.evicted, b.left())
		}
	})
}
