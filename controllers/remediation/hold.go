package remediation

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/disruption"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machinefacts"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/deletionbudget"
	"github.com/machine-controller-fleet/machine-controller-fleet/telemetry"
)

// HoldChanged enqueues the roots of a namespace, with "" all roots: deletions are held now, or not any more.
func (c *Controller) HoldChanged(namespace string) {
	c.deployments.enqueueIn(namespace)
	c.sets.enqueueIn(namespace)
}

// Waiting returns how many machines of this process's slots are not deleted or replaced only because deletions are held or the deletion
// budget of their namespace is exhausted.
func (c *Controller) Waiting() int { return c.deployments.waitingNow() + c.sets.waitingNow() }

// waitingNow returns how many machines of the roots wait. A pass may end after its root has left the cache, so that only roots that are
// there count.
func (r *roots[T]) waitingNow() (n int) {
	for _, root := range r.all.All() {
		if waiting, ok := r.waiting.Load(root.GetUID()); ok {
			count, _ := waiting.(int)
			n += count
		}
	}
	return n
}

// keepWaiting records how many machines of a root wait.
func (r *roots[T]) keepWaiting(root types.UID, waiting int) {
	if waiting == 0 {
		r.waiting.Delete(root)
		return
	}
	r.waiting.Store(root, waiting)
}

// heldMessage returns the message of the condition DeletionsHeld; "" if no machine waits, or only until Namespaces and the leader Lease are read.
func heldMessage(why string, waiting int) string {
	if why == "" || waiting == 0 {
		return ""
	}
	return fmt.Sprintf("Machines that wait to be deleted or replaced: %s. Deletions are held by the %s", atLeast(waiting), why)
}

// atLeast returns a number as text, rounded down from 10 on: where many machines become unhealthy, the status is not written for each.
func atLeast(n int) string {
	if n < 10 {
		return fmt.Sprint(n)
	}
	floor := 10
	for _, step := range []int{20, 50, 100, 200, 500, 1000, 2000, 5000} {
		if n >= step {
			floor = step
		}
	}
	return fmt.Sprintf("at least %d", floor)
}

// holding is the content of the condition DeletionsHeld of a root. The zero value means that it has none.
type holding struct{ reason, message string }

// holdingOf returns the condition of a root. by is what holds deletions, and grant what the deletion budget allows.
func holdingOf(by string, v disruption.Verdict, grant deletionbudget.Grant) holding {
	if message := heldMessage(by, v.Waiting); message != "" {
		return holding{v1alpha1.ReasonHoldAnnotation, message}
	}
	if v.Unreserved == 0 {
		return holding{}
	}
	return holding{v1alpha1.ReasonDeletionBudget, fmt.Sprintf("Unhealthy machines that wait to be replaced: %s; %s", atLeast(v.Unreserved), grant.Exhausted())}
}

// decide decides on a root. Replacements are reserved of the deletion budget before they are recorded: what is reserved and not recorded,
// because the process ends, is reserved again by the next pass and counts once.
func (r *roots[T]) decide(ctx context.Context, root T, w disruption.World) (v disruption.Verdict, grant deletionbudget.Grant, err error) {
	v = disruption.Decide(w)
	if r.cfg.Budget == nil || w.Deleted || len(v.Deletions) == 0 {
		return v, grant, nil
	}
	if grant, err = r.cfg.Budget.Reserve(ctx, root.GetNamespace(), v.Deletions); err != nil {
		return v, grant, err
	}
	w.Limited, w.Reserved = true, grant.Reserved
	v = disruption.Decide(w)
	if v.Unreserved > 0 && (v.Wake == 0 || grant.Next < v.Wake) {
		v.Wake = grant.Next
	}
	return v, grant, nil
}

// announceHeld emits an Event when machines of a root begin to wait, and when none waits any more.
func (r *roots[T]) announceHeld(ctx context.Context, before T, message string) {
	about, ok := any(before).(runtime.Object)
	was := r.held(before)
	switch {
	case !ok:
	case was == "" && message != "":
		telemetry.Emit(ctx, r.events, about, v1alpha1.EventDeletionsHeld, message)
	case was != "" && message == "":
		telemetry.Emit(ctx, r.events, about, v1alpha1.EventDeletionsReleased, "No machine waits any more for the end of a hold of deletions, or for the deletion budget")
	}
}

func heldByDeployment(d *v1alpha1.MachineDeployment) string {
	if c := machinefacts.MachineDeploymentCondition(&d.Status, v1alpha1.MachineDeploymentDeletionsHeld); c != nil {
		return c.Message
	}
	return ""
}

func reportHeldOnDeployment(d *v1alpha1.MachineDeployment, now time.Time, is holding) {
	if is == (holding{}) {
		machinefacts.DropMachineDeploymentCondition(&d.Status, v1alpha1.MachineDeploymentDeletionsHeld)
		return
	}
	machinefacts.PutMachineDeploymentCondition(&d.Status, v1alpha1.MachineDeploymentCondition{
		Type: v1alpha1.MachineDeploymentDeletionsHeld, Status: corev1.ConditionTrue, Reason: is.reason, Message: is.message,
	}, now)
}

func heldBySet(s *v1alpha1.MachineSet) string {
	if c := machinefacts.MachineSetCondition(&s.Status, v1alpha1.MachineSetDeletionsHeld); c != nil {
		return c.Message
	}
	return ""
}

func reportHeldOnSet(s *v1alpha1.MachineSet, now time.Time, is holding) {
	if is == (holding{}) {
		machinefacts.DropMachineSetCondition(&s.Status, v1alpha1.MachineSetDeletionsHeld)
		return
	}
	machinefacts.PutMachineSetCondition(&s.Status, v1alpha1.MachineSetCondition{
		Type: v1alpha1.MachineSetDeletionsHeld, Status: corev1.ConditionTrue, Reason: is.reason, Message: is.message,
	}, now)
}
