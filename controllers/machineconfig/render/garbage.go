package render

import (
	"context"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/fleet/v1alpha1"
	machinev1alpha1 "github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machineconfig/render/merge"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/deletion"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/deletion/receipt"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/runner"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/telemetry"
)

// sweepEvery is the time between two lists of all that may name a RenderedMachineConfig of a pool
// which has more than are kept.
const sweepEvery = time.Hour

// collect deletes RenderedMachineConfigs of a pool that nothing names, and releases those that are
// being deleted.
func (c *Controller) collect(ctx context.Context, pool *v1alpha1.MachineConfigPool) (runner.Result, error) {
	now := c.cfg.Clock.Now()
	var cached []*v1alpha1.RenderedMachineConfig
	for _, about := range c.cfg.Cache.Rendered(pool.Name) {
		cached = append(cached, stub(about))
	}
	possible := merge.Garbage(now, cached, merge.Uses{Pools: []*v1alpha1.MachineConfigPool{pool}})
	every := sweepEvery
	last := c.setSweep(pool.Name, func(s *sweep) { s.waits = len(possible.Release) > 0 })
	switch {
	case len(possible.Release) > 0:
		every = releaseEvery
	case len(cached) <= merge.KeptResults:
		return runner.Result{}, nil
	case len(possible.Delete) == 0:
		return runner.Result{RequeueAfter: sweepEvery}, nil // they may be too young
	}
	if wait := last.at.Add(every).Sub(now); wait > 0 && !last.isDue {
		return runner.Result{RequeueAfter: wait}, nil
	}
	if wait := c.mayList(now); wait > 0 {
		return runner.Result{RequeueAfter: wait}, nil
	}
	live, uses, err := c.listUses(ctx, pool.Name)
	if err != nil {
		return runner.Result{}, err
	}
	d := merge.Garbage(now, live, uses)
	for _, r := range live {
		switch {
		case slices.Contains(d.Delete, r.Name):
			err = c.delete(ctx, pool, r, "no pool, Node, Machine or template names it")
		case slices.Contains(d.Release, r.Name):
			err = c.free(ctx, r)
		}
		if err != nil {
			return runner.Result{}, err
		}
	}
	return runner.Result{RequeueAfter: every}, nil
}

// What clients of a namespace's target cluster can have listed of the control cluster is limited,
// however many pools they delete there.
const (
	listBurst    = 20
	listInterval = 3 * time.Second
)

// mayList returns after which time the uses of a pool may be listed. 0 counts a list.
func (c *Controller) mayList(now time.Time) time.Duration {
	of := c.cfg.Cache.Namespace()
	if of == "" {
		return 0
	}
	wait := c.lists.Wait(of, now)
	if wait == 0 {
		c.lists.Count(of, now)
	}
	return wait
}

// listUses lists a pool's RenderedMachineConfigs and all that may name one. A change from now on
// causes another list.
func (c *Controller) listUses(ctx context.Context, pool string) (all []*v1alpha1.RenderedMachineConfig, uses merge.Uses, err error) {
	c.setSweep(pool, func(s *sweep) { s.isDue = false })
	all, uses, err = c.live(ctx, pool)
	c.setSweep(pool, func(s *sweep) {
		if err != nil {
			s.isDue = true
			return
		}
		s.at = c.cfg.Clock.Now()
	})
	return all, uses, err
}

// release removes the finalizer of a pool that is being deleted, and its RenderedMachineConfigs
// before, when nothing names one of them.
func (c *Controller) release(ctx context.Context, pool *v1alpha1.MachineConfigPool) (runner.Result, error) {
	if !slices.Contains(pool.Finalizers, v1alpha1.FinalizerInUse) {
		return runner.Result{}, nil
	}
	c.setSweep(pool.Name, func(s *sweep) { s.waits = true })
	if wait := c.mayList(c.cfg.Clock.Now()); wait > 0 {
		return runner.Result{RequeueAfter: wait}, nil
	}
	live, uses, err := c.listUses(ctx, pool.Name)
	if err != nil {
		return runner.Result{}, err
	}
	if !merge.MayRelease(pool.Name, live, uses.Names) {
		telemetry.Emit(ctx, c.cfg.Events, pool, machinev1alpha1.EventPoolInUse,
			"Deletion pending: Nodes or Machines name RenderedMachineConfigs of the pool. Delete them, or move them to another pool")
		return runner.Result{RequeueAfter: releaseEvery}, nil
	}
	for _, r := range live {
		if r.DeletionTimestamp == nil {
			if err := c.delete(ctx, pool, r, "its MachineConfigPool is deleted"); err != nil {
				return runner.Result{}, err
			}
		}
		if err := c.free(ctx, r); err != nil {
			return runner.Result{}, err
		}
	}
	released := pool.DeepCopy()
	released.Finalizers = slices.DeleteFunc(released.Finalizers, isOurs)
	if _, err := c.pools.Commit(ctx, pool, released); err != nil && !apierrors.IsNotFound(err) {
		return runner.Result{}, fmt.Errorf("remove our finalizer from the pool: %w", err)
	}
	return runner.Result{}, nil
}

func isOurs(finalizer string) bool { return finalizer == v1alpha1.FinalizerInUse }

// delete requests the deletion of a RenderedMachineConfig, which stays until it is released.
func (c *Controller) delete(ctx context.Context, pool *v1alpha1.MachineConfigPool, r *v1alpha1.RenderedMachineConfig, why string) error {
	d := deletion.Deletion{
		Object: receipt.Object{Kind: receipt.RenderedMachineConfig, Name: r.Name, UID: r.UID},
		Reason: receipt.Because(receipt.Superseded, why), About: []runtime.Object{pool},
	}
	_, err := c.cfg.Deletions.Delete(ctx, c.cfg.Events, d, func(ctx context.Context) error {
		err := c.cfg.Client.RenderedMachineConfigs().
			Delete(ctx, r.Name, metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(r.UID))})
		if apierrors.IsNotFound(err) {
			return deletion.ErrNothing
		}
		return err
	})
	if err != nil && !isNothing(err) {
		return fmt.Errorf("delete RenderedMachineConfig %s: %w", r.Name, err)
	}
	return nil
}

// free removes our finalizer from a RenderedMachineConfig that is being deleted.
func (c *Controller) free(ctx context.Context, r *v1alpha1.RenderedMachineConfig) error {
	about, err := c.cfg.Target.Resource(renderedConfigs()).Get(ctx, r.Name, metav1.GetOptions{})
	if err == nil && about.UID == r.UID && slices.ContainsFunc(about.Finalizers, isOurs) {
		freed := about.DeepCopy()
		freed.Finalizers = slices.DeleteFunc(freed.Finalizers, isOurs)
		_, err = c.rendered.Commit(ctx, about, freed)
	}
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("remove our finalizer from RenderedMachineConfig %s: %w", r.Name, err)
	}
	c.rendered.Forget(r.UID)
	return nil
}
