package machinedeployment

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machinedeployment/rollout"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/objectcache"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/telemetry"
)

// tracedRollout is a rollout, and when this process has first observed it.
type tracedRollout struct {
	telemetry.Stage

	since time.Time
}

// stage returns the rollout that a deployment is in, in whose trace its passes are. It is called
// where there are traces.
func (c *Controller) stage(key types.NamespacedName) telemetry.Stage {
	d, known := c.cfg.View.Deployments.Get(key)
	if !known {
		return telemetry.Stage{}
	}
	d = c.deployments.Newest(d)
	stage := RolloutOf(c.cfg.View, d)
	if last, _ := c.rolloutOf(d.UID); stage != (telemetry.Stage{}) && last.Stage != stage {
		c.rollouts.Store(d.UID, tracedRollout{stage, c.cfg.Clock.Now()})
	}
	return stage
}

// rolloutOf returns the last rollout of a deployment that was observed.
func (c *Controller) rolloutOf(deployment types.UID) (last tracedRollout, traced bool) {
	stored, _ := c.rollouts.Load(deployment)
	last, traced = stored.(tracedRollout)
	return last, traced
}

// RolloutOf returns the rollout that a deployment is in, as a stage of which the passes of the
// deployment and its sets are traced; the zero Stage if it is in none.
func RolloutOf(view *objectcache.View, d *v1alpha1.MachineDeployment) telemetry.Stage {
	owned, _ := view.Sets.Children(d)
	revision, is := rollout.UnderWay(d, owned)
	if !is {
		return telemetry.Stage{}
	}
	return telemetry.Stage{Name: "roll out", ID: fmt.Sprintf("%s/%d", d.UID, revision)}
}

// traceEnd ends the trace of a rollout with the write that reports its end. It has begun when its
// set was created or, where the set is older, when this process has first observed it.
func (c *Controller) traceEnd(ctx context.Context, before, written *v1alpha1.MachineDeployment, owned []*v1alpha1.MachineSet) {
	is, traced := c.rolloutOf(before.UID)
	if !traced || !rollout.Ends(before, written) {
		return
	}
	c.rollouts.Delete(before.UID)
	if set := rollout.NewSet(written, owned); set != nil && set.Annotations[v1alpha1.AnnotationRevisionHistory] == "" &&
		set.CreationTimestamp.Time.Before(is.since) {
		is.since = set.CreationTimestamp.Time
	}
	telemetry.EndStage(ctx, is.Stage, string(written.UID), written, telemetry.Interval{From: is.since, To: c.cfg.Clock.Now()}, "")
}
