package update

import (
	"context"
	"fmt"
	"slices"
	"time"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/fleet/v1alpha1"
	machinev1alpha1 "github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/patch"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/telemetry"
)

// statusPace is for how long changes of counts and messages are gathered for one write, and
// slowStatusPace for how long while Nodes are being updated. A condition that changes its status or
// reason is written at once.
const (
	statusPace     = time.Second
	slowStatusPace = 5 * time.Second
)

// report writes the counts and the conditions of the pool, where they differ. It returns after what
// time a change has to be written that is delayed.
func (c *Controller) report(ctx context.Context, p *pass) (wait time.Duration, err error) {
	wanted := p.pool.DeepCopy()
	wanted.Status = withConditions(p.verdict.Status, p.pool.Status.Conditions)
	change := changeOf(&p.pool.Status, &wanted.Status)
	if change == atOnce {
		c.pace.Wait(p.pool, patch.Unchanged, c.cfg.Clock.Now()) // what was delayed is written, too
	} else if wait := c.pace.Wait(p.pool, change, c.cfg.Clock.Now()); wait > 0 || change == patch.Unchanged {
		return wait, nil
	}
	if _, err := c.pools.Commit(ctx, p.pool, wanted); err != nil {
		if apierrors.IsNotFound(err) {
			return 0, nil
		}
		c.pace.Failed(p.pool, err)
		return 0, fmt.Errorf("write the status of the pool: %w", err)
	}
	c.emit(ctx, p.pool, wanted)
	return 0, nil
}

// atOnce is a change of the status that is not delayed.
const atOnce patch.Change = -1

// withConditions returns a status with the conditions of others next to its own.
func withConditions(status v1alpha1.MachineConfigPoolStatus, before []metav1.Condition) v1alpha1.MachineConfigPoolStatus {
	own := status.Conditions
	status.Conditions = slices.Clone(before)
	for _, condition := range own {
		status.Conditions = slices.DeleteFunc(status.Conditions, func(c metav1.Condition) bool { return c.Type == condition.Type })
	}
	status.Conditions = append(status.Conditions, own...)
	slices.SortStableFunc(status.Conditions, func(a, b metav1.Condition) int { return indexOf(before, a.Type) - indexOf(before, b.Type) })
	return status
}

// indexOf returns the place of a condition, so that conditions do not change their order; behind
// all others when it is new.
func indexOf(conditions []metav1.Condition, of string) int {
	if i := slices.IndexFunc(conditions, func(c metav1.Condition) bool { return c.Type == of }); i >= 0 {
		return i
	}
	return len(conditions)
}

// changeOf returns how a status differs from the one before.
func changeOf(before, after *v1alpha1.MachineConfigPoolStatus) patch.Change {
	if apiequality.Semantic.DeepEqual(before, after) {
		return patch.Unchanged
	}
	if before.ObservedGeneration != after.ObservedGeneration || before.CompletedMachineConfig != after.CompletedMachineConfig {
		return atOnce
	}
	for _, is := range after.Conditions {
		was := meta.FindStatusCondition(before.Conditions, is.Type)
		if was == nil || was.Status != is.Status || was.Reason != is.Reason {
			return atOnce
		}
	}
	if meta.IsStatusConditionTrue(after.Conditions, v1alpha1.PoolUpdating) {
		return patch.Streaming
	}
	return patch.Counted
}

// emit records Events about what a write of the status has changed.
func (c *Controller) emit(ctx context.Context, before, after *v1alpha1.MachineConfigPool) {
	completed := after.Status.CompletedMachineConfig
	if completed != before.Status.CompletedMachineConfig {
		telemetry.Emit(ctx, c.cfg.Events, after, machinev1alpha1.EventPoolUpdated,
			fmt.Sprintf("All %d Nodes have %s", after.Status.MachineCount, completed))
	}
	for kind, reason := range map[string]string{
		v1alpha1.PoolNodeDegraded: machinev1alpha1.EventNodesDegraded, v1alpha1.PoolNodeConflict: machinev1alpha1.EventNodesShared,
	} {
		is := meta.FindStatusCondition(after.Status.Conditions, kind)
		if is != nil && is.Status == metav1.ConditionTrue && !meta.IsStatusConditionTrue(before.Status.Conditions, kind) {
			telemetry.Emit(ctx, c.cfg.Events, after, reason, is.Message)
		}
	}
}
