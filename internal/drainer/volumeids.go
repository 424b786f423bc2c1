package drainer

import (
	"context"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"github.com/machine-controller-fleet/machine-controller-fleet/driver"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/drainer/drain"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/runner"
)

// volumeIDsTimeout bounds how long one pass requests names of volumes. Most drivers know them
// without a call of their cloud, and the pass has pods to remove; names that are missing then are
// requested again.
const volumeIDsTimeout = 5 * time.Second

// volumeIDs are the cloud's names of the volumes of a Node that is being drained. A volume without
// an answer counts as one that the driver does not know, and its name is requested again: the
// removal of pods must not depend on a cloud that fails.
type volumeIDs struct {
	reported map[string]string // by PersistentVolume; "" where the driver knows none
	lacks    bool              // some have no answer yet
	next     time.Time         // when the driver may be called again after a failure
	step     time.Duration     // the back-off of which next is the end
}

// wait returns the time after which the driver is called again; 0 when it is not.
func (v *volumeIDs) wait(now time.Time) time.Duration {
	if !v.lacks {
		return 0
	}
	return max(v.next.Sub(now), time.Millisecond)
}

// volumeIDs returns the names of the volumes that are known, and requests the others: one name in
// each call, because an answer does not contain the volume that it is for. After a failure it sends
// no call for a while, because a call that fails occupies the worker.
func (d *Drain) volumeIDs(ctx context.Context, cloud driver.Driver, facts *drain.Facts) map[string]string {
	d.ids.lacks = false
	if cloud == nil {
		return d.ids.reported
	}
	call, cancel := context.WithTimeout(ctx, volumeIDsTimeout)
	defer cancel()
	for _, name := range slices.Sorted(maps.Keys(facts.Volumes.PVs)) {
		if _, reported := d.ids.reported[name]; reported {
			continue
		}
		if d.of.own.Now().Before(d.ids.next) || !d.requestVolumeID(call, cloud, facts.Volumes.PVs[name]) {
			d.ids.lacks = !d.ids.next.IsZero()
			break
		}
	}
	return d.ids.reported
}

// requestVolumeID requests the name of one volume, and reports whether the driver answered.
func (d *Drain) requestVolumeID(ctx context.Context, cloud driver.Driver, pv *corev1.PersistentVolume) bool {
	answer, err := cloud.GetVolumeIDs(ctx, driver.GetVolumeIDsRequest{Volumes: []*corev1.PersistentVolumeSpec{&pv.Spec}})
	switch code := driver.CodeOf(err); {
	case code == driver.Unimplemented, err == nil && len(answer.IDs) == 0:
		d.ids.reported[pv.Name] = ""
	case err == nil:
		d.ids.reported[pv.Name] = answer.IDs[0]
	case runner.NotOurs(err): // the replica that reconciles the machine now requests it
		d.ids.next = time.Time{}
		return false
	default:
		var wait time.Duration
		d.ids.step, wait = d.of.cfg.Backoff(d.ids.step, code, driver.RetryAfterOf(err))
		d.ids.next = d.of.own.Now().Add(wait)
		klog.FromContext(ctx).V(2).Info("Driver call failed", "action", driver.OpVolumeIDs, "volume", pv.Name, "err", err)
		return false
	}
	d.ids.step, d.ids.next = 0, time.Time{}
	return true
}
