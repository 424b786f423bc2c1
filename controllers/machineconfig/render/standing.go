package render

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/fleet/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/machineconfig/configcache"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/runner"
)

const (
	// reasonOtherNamespace is that of a pool which nothing serves that has this cluster as its target.
	reasonOtherNamespace = "OtherNamespace"
	// otherNamespaceAfter is for how long another namespace may not have reported on a change of a
	// pool that is for it. The namespace may have the same cluster.
	otherNamespaceAfter = time.Minute
)

// leaveToOther claims a pool that is for no namespace yet. If one is for another namespace, which
// does not report on it, it says so: the fleet never does anything there on behalf of this cluster.
func (c *Controller) leaveToOther(ctx context.Context, pool *v1alpha1.MachineConfigPool) (runner.Result, error) {
	after := pool.DeepCopy()
	switch is := meta.FindStatusCondition(pool.Status.Conditions, v1alpha1.PoolRenderDegraded); {
	case pool.DeletionTimestamp != nil:
		return runner.Result{}, nil
	case c.cfg.Cache.StandingOfPool(pool) == configcache.Unclaimed:
		c.cfg.Cache.Claim(&after.ObjectMeta)
	case pool.Spec.Paused || is != nil && is.ObservedGeneration == pool.Generation:
		return runner.Result{}, nil
	default:
		now := c.cfg.Clock.Now()
		if wait := c.otherSince(pool, now).Add(otherNamespaceAfter).Sub(now); wait > 0 {
			return runner.Result{RequeueAfter: wait}, nil
		}
		meta.SetStatusCondition(&after.Status.Conditions, metav1.Condition{
			Type: v1alpha1.PoolRenderDegraded, Status: metav1.ConditionTrue, Reason: reasonOtherNamespace,
			ObservedGeneration: pool.Generation, LastTransitionTime: metav1.NewTime(now), Message: c.otherNamespace(pool),
		})
	}
	written, err := c.pools.Commit(ctx, pool, after)
	if apierrors.IsNotFound(err) {
		return runner.Result{}, nil
	}
	if err != nil {
		return runner.Result{}, fmt.Errorf("write the namespace that the pool is for: %w", err)
	}
	c.report(ctx, pool, written, nil)
	return runner.Result{}, nil // a claim is an event
}

// otherNamespace says why a pool is not served.
func (c *Controller) otherNamespace(pool *v1alpha1.MachineConfigPool) string {
	field, namespace := "metadata.annotations["+v1alpha1.AnnotationNamespace+"]", pool.Annotations[v1alpha1.AnnotationNamespace]
	if ref := pool.Spec.MachineRef; ref != nil {
		field, namespace = "spec.machineRef.namespace", ref.Namespace
	}
	return fmt.Sprintf("%s must be %s, whose target this cluster is, got %s: that namespace has another target cluster, or no machine",
		field, c.cfg.Cache.Namespace(), namespace)
}

// otherSince returns since when this version of a pool is known, which is for another namespace.
func (c *Controller) otherSince(pool *v1alpha1.MachineConfigPool, now time.Time) time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	known := c.others[pool.Name]
	if known.generation != pool.Generation || known.since.IsZero() {
		known = other{generation: pool.Generation, since: now}
		c.others[pool.Name] = known
	}
	return known.since
}

// other is a pool that is for another namespace.
type other struct {
	generation int64
	since      time.Time
}
