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

// setAside sets a machine aside after a panic in its pass. It reads nothing but the machine's
// metadata, because anything else of the pass reads may make it panic, too.
func (w *writer) setAside(ctx context.Context, key types.NamespacedName, fault *runner.PanicError) {
	m, known := w.view.Machines.Get(key)
	if !known {
		return
	}
	m = w.latest.Newest(m)
	text := fmt.Sprint(fault.Value)
	value, first := lifecycle.SetAside(m, w.clock.Now(), text)
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": m.UID, "annotations": map[string]string{v1alpha1.AnnotationSetAside: value},
	}})
	if err == nil {
		m, err = w.client.Machines(key.Namespace).Patch(ctx, key.Name, types.MergePatchType, patch, metav1.PatchOptions{})
	}
	if err != nil {
		klog.FromContext(ctx).Error(err, "Failed to set machine aside; retrying after back-off")
		return
	}
	w.latest.Wrote(m)
	if first {
		w.report(ctx, m, m, lifecycle.Event{
			Reason: v1alpha1.EventSetAside, Message: "Processing this machine panicked; it is left as it is for a while: " + text,
		})
	}
}

// reportSetAside returns for how long a machine remains set aside, 0 if it is not, and records that
// in the machine's status. Errors: the write.
func (w *writer) reportSetAside(ctx context.Context, m *v1alpha1.Machine) (wait time.Duration, err error) {
	now := w.clock.Now()
	cause, wait := lifecycle.WhileSetAside(m, now)
	if cause == nil {
		return 0, nil
	}
	p := &pass{world: lifecycle.World{Now: now, Limits: w.limits, Machine: m, PassError: cause}}
	return wait, w.save(ctx, p, lifecycle.Decide(p.world))
}
