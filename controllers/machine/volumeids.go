package machine

import (
	"context"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machine/drain"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machine/lifecycle"
	"github.com/machine-controller-fleet/machine-controller-fleet/driver"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/runner"
)

// volumeIDsTimeout bounds how long a pass asks for names. Drivers mostly know them without their cloud, and the pass has pods
// to remove; what was not told by then is asked for again.
const volumeIDsTimeout = 5 * time.Second

// volumeIDs are the cloud's names of the volumes of a Node that is drained. A volume whose name the cloud did not tell
// counts as one that its driver does not know, and is asked for again: the pods do not wait for a cloud that fails.
type volumeIDs struct {
	reported map[string]string // by PersistentVolume; "" where the driver knows none
	lacks    bool              // some are still to be told
	next     time.Time         // when the cloud may be asked again after a failure
	step     time.Duration     // that led to next
}

// wait is until the cloud is asked again; 0 when it is not.
func (v *volumeIDs) wait(now time.Time) time.Duration {
	if !v.lacks {
		return 0
	}
	return max(v.next.Sub(now), time.Millisecond)
}

// volumeIDs returns what is known of the names of the volumes, and asks for the others. Each is asked for by itself, because
// the answer does not say which volume it is for, and after a failure none for a while: the worker has others to serve.
func (c *Controller) volumeIDs(ctx context.Context, p *pass, d *draining, facts *drain.Facts) map[string]string {
	d.ids.lacks = false
	if p.driver == nil {
		return d.ids.reported
	}
	call, cancel := context.WithTimeout(ctx, volumeIDsTimeout)
	defer cancel()
	for _, name := range slices.Sorted(maps.Keys(facts.Volumes.PVs)) {
		if _, reported := d.ids.reported[name]; reported {
			continue
		}
		if c.cfg.Clock.Now().Before(d.ids.next) || !c.askVolumeID(call, p, d, facts.Volumes.PVs[name]) {
			d.ids.lacks = !d.ids.next.IsZero()
			break
		}
	}
	return d.ids.reported
}

// askVolumeID asks for one name; false means that the cloud has failed.
func (c *Controller) askVolumeID(ctx context.Context, p *pass, d *draining, pv *corev1.PersistentVolume) bool {
	answer, err := p.driver.GetVolumeIDs(ctx, driver.GetVolumeIDsRequest{Volumes: []*corev1.PersistentVolumeSpec{&pv.Spec}})
	switch code := driver.CodeOf(err); {
	case code == driver.Unimplemented, err == nil && len(answer.IDs) == 0:
		d.ids.reported[pv.Name] = ""
	case err == nil:
		d.ids.reported[pv.Name] = answer.IDs[0]
	case runner.NotOurs(err): // whoever owns the machine now asks anew
		d.ids.next = time.Time{}
		return false
	default:
		var wait time.Duration
		d.ids.step, wait = lifecycle.NextWait(d.ids.step, code, driver.RetryAfterOf(err), c.cfg.Limits)
		d.ids.next = c.cfg.Clock.Now().Add(wait)
		klog.FromContext(ctx).V(2).Info("The cloud failed", "action", driver.OpVolumeIDs, "volume", pv.Name, "err", err)
		return false
	}
	d.ids.step, d.ids.next = 0, time.Time{}
	return true
}
