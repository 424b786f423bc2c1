package machine

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machine/lifecycle"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/runner"
)

// panicked sets a machine aside after a panic in its pass. It reads nothing but the machine's metadata, because whatever else the
// pass reads may make it panic, too.
func (c *Controller) panicked(ctx context.Context, key types.NamespacedName, fault *runner.PanicError) {
	m, known := c.cfg.View.Machines.Get(key)
	if !known {
		return
	}
	m = c.machines.Newest(m)
	text := fmt.Sprint(fault.Value)
	value, first := lifecycle.SetAside(m, c.cfg.Clock.Now(), text)
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": m.UID, "annotations": map[string]string{v1alpha1.AnnotationSetAside: value},
	}})
	if err == nil {
		m, err = c.cfg.Machines.Machines(key.Namespace).Patch(ctx, key.Name, types.MergePatchType, patch, metav1.PatchOptions{})
	}
	if err != nil {
		klog.FromContext(ctx).Error(err, "Failed to set machine aside; retrying after back-off")
		return
	}
	c.machines.Wrote(m)
	if first {
		c.report(ctx, m, m, lifecycle.Event{Reason: v1alpha1.EventSetAside, Message: "Processing this machine panicked; it is left as it is for a while: " + text})
	}
}

// reportSetAside returns for how long a machine remains set aside, 0 if it is not, and records that in the machine's status. Errors: the
// write.
func (c *Controller) reportSetAside(ctx context.Context, m *v1alpha1.Machine) (wait time.Duration, err error) {
	now := c.cfg.Clock.Now()
	cause, wait := lifecycle.WhileSetAside(m, now)
	if cause == nil {
		return 0, nil
	}
	p := &pass{world: lifecycle.World{Now: now, Limits: c.cfg.Limits, Machine: m, PassError: cause}}
	return wait, c.save(ctx, p, lifecycle.Decide(p.world))
}
