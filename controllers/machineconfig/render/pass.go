package render

import (
	"context"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/fleet/v1alpha1"
	machinev1alpha1 "github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machineconfig/render/merge"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/telemetry"
)

// render renders a pool that is due, and returns it as it then is.
func (c *Controller) render(ctx context.Context, w merge.World) (*v1alpha1.MachineConfigPool, error) {
	result := merge.Prepare(w)
	for _, name := range result.Needs(w) {
		if err := c.read(ctx, &w, name); err != nil {
			return nil, err
		}
	}
	v := result.Decide(w)
	if v.Create != nil {
		created, err := c.cfg.Client.RenderedMachineConfigs().Create(ctx, v.Create, metav1.CreateOptions{})
		if err != nil {
			return nil, fmt.Errorf("create RenderedMachineConfig %s: %w", v.Create.Name, err)
		}
		c.verify(created)
	}
	after, err := c.pools.Commit(ctx, w.Pool, desired(w, v))
	if err != nil {
		return nil, fmt.Errorf("record the target of the pool: %w", err)
	}
	c.report(ctx, w.Pool, after, v.Warnings)
	return after, nil
}

// read adds a RenderedMachineConfig with its content to the world, or removes it if it does not
// exist.
func (c *Controller) read(ctx context.Context, w *merge.World, name string) error {
	w.Rendered = slices.DeleteFunc(w.Rendered, func(r *v1alpha1.RenderedMachineConfig) bool { return r.Name == name })
	live, err := c.cfg.Client.RenderedMachineConfigs().Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return fmt.Errorf("read RenderedMachineConfig %s: %w", name, err)
	}
	w.Rendered = append(w.Rendered, live)
	c.verify(live)
	return nil
}

// verify remembers that the content of a RenderedMachineConfig is that of its name. The API server
// rejects changes.
func (c *Controller) verify(r *v1alpha1.RenderedMachineConfig) {
	if !r.Verify() {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.verified[r.Name] = r.UID
}

// desired returns the pool as a verdict wants it.
func desired(w merge.World, v merge.Verdict) *v1alpha1.MachineConfigPool {
	pool := w.Pool.DeepCopy()
	if !slices.Contains(pool.Finalizers, v1alpha1.FinalizerInUse) {
		pool.Finalizers = append(pool.Finalizers, v1alpha1.FinalizerInUse)
	}
	s := &pool.Status
	if v.Target != "" {
		s.CurrentMachineConfig, s.AbandonedMachineConfigs, s.Sources = v.Target, v.Abandoned, v.Sources
	}
	condition := *v.Condition
	condition.LastTransitionTime = metav1.NewTime(w.Now)
	meta.SetStatusCondition(&s.Conditions, condition)
	return pool
}

// report emits what has changed.
func (c *Controller) report(ctx context.Context, before, after *v1alpha1.MachineConfigPool, warnings []string) {
	if target := after.Status.CurrentMachineConfig; target != before.Status.CurrentMachineConfig {
		klog.FromContext(ctx).Info("Rendered target of pool", "target", target, "before", before.Status.CurrentMachineConfig)
		telemetry.EmitUnlogged(c.cfg.Events, after, machinev1alpha1.EventRendered,
			fmt.Sprintf("Rendered %s from MachineConfigs %s", target, strings.Join(after.Status.Sources, ", ")))
		for _, warning := range warnings {
			telemetry.Emit(ctx, c.cfg.Events, after, machinev1alpha1.EventConfigIgnored, warning)
		}
	}
	was := meta.FindStatusCondition(before.Status.Conditions, v1alpha1.PoolRenderDegraded)
	is := meta.FindStatusCondition(after.Status.Conditions, v1alpha1.PoolRenderDegraded)
	if is != nil && is.Status == metav1.ConditionTrue && (was == nil || was.Status != is.Status || was.Message != is.Message) {
		telemetry.Emit(ctx, c.cfg.Events, after, machinev1alpha1.EventRenderFailed, is.Message)
	}
}
