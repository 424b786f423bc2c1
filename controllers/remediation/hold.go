package remediation

import (
	"context"
	"fmt"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/deletion"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/disruption"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/machinefacts"
)

// HoldChanged enqueues the roots of a namespace, with "" all roots: deletions are held now, or not
// any more.
func (c *Controller) HoldChanged(namespace string) {
	c.deployments.enqueueIn(namespace)
	c.sets.enqueueIn(namespace)
}

// Waiting returns how many machines of this process's slots are not deleted or replaced only
// because deletions are held or the deletion budget of their namespace is exhausted.
func (c *Controller) Waiting() int { return c.deployments.waitingNow() + c.sets.waitingNow() }

// waitingNow returns how many machines of the roots wait. A pass may end after its root has left
// the cache, so that only roots that are there count.
func (r *roots[T]) waitingNow() (n int) {
	for _, root := range r.all.All() {
		waiting, _ := r.waiting.Load(root.GetUID())
		count, _ := waiting.(int)
		n += count
	}
	return n
}

// atLeast returns a number as text, rounded down from 10 on: where many machines become unhealthy,
// the status is not written for each.
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

// heldOf returns the condition DeletionsHeld of a root; none if no machine waits, or only until
// Namespaces and the leader Lease are read. by is what holds deletions, and grant what the deletion
// budget allows.
func heldOf(by string, v disruption.Verdict, grant deletion.Grant) condition {
	switch {
	case by != "" && v.Waiting > 0:
		return machinefacts.True(v1alpha1.ReasonHoldAnnotation,
			fmt.Sprintf("Machines that wait to be deleted or replaced: %s. Deletions are held by the %s", atLeast(v.Waiting), by))
	case v.Unreserved == 0:
		return condition{}
	}
	return machinefacts.True(v1alpha1.ReasonDeletionBudget,
		fmt.Sprintf("Unhealthy machines that wait to be replaced: %s; %s", atLeast(v.Unreserved), grant.Exhausted()))
}

// decide decides on a root. Replacements are reserved of the deletion budget before they are
// recorded: what is reserved and not recorded, because the process ends, is reserved again by the
// next pass and counts once.
func (r *roots[T]) decide(ctx context.Context, root T, w disruption.World) (v disruption.Verdict, grant deletion.Grant, err error) {
	v = disruption.Decide(w)
	if r.cfg.Budget == nil || w.Deleted || len(v.Deletions) == 0 {
		return v, grant, nil
	}
	if grant, err = r.cfg.Budget.Reserve(ctx, root.GetNamespace(), v.Deletions); err != nil {
		return v, grant, err
	}
	w.Limited, w.Reserved, w.More = true, grant.Reserved, w.Now.Add(grant.Next)
	return disruption.Decide(w), grant, nil
}
