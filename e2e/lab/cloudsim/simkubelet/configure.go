package simkubelet

import (
	"context"
	"fmt"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/fleet/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/lab/cloudsim/guest"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/machineconfig/daemon/lifecycle"
)

// daemon is the machine-config-daemon of a VM: what the real one has on its disk, and last wrote on
// its Node. It decides as the real one does, and changes nothing: each change succeeds, and needs a
// drain and a reboot.
type daemon struct {
	isKnown  bool // whether the fields below were read from the Node, after a start of this process
	current  string
	open     *lifecycle.Open
	target   string // the desired configuration that it has read
	reported lifecycle.Report
	boots    int
	offUntil time.Time // of the last reboot
}

// rebooting returns the current health of a VM, which has none while it reboots for its
// configuration.
func (v *vm) rebooting(health guest.Health, now time.Time) guest.Health {
	if now.Before(v.daemon.offUntil) {
		return max(health, guest.NotReady)
	}
	return health
}

// configure does what is due for the configuration that is desired for the VM's Node. It returns
// when to call it again.
func (h *Host) configure(ctx context.Context, v *vm, now time.Time) (time.Duration, error) {
	d, prefix := &v.daemon, v1alpha1.DaemonPrefix
	node := h.seen(v)
	if node == nil || !h.cfg.Daemons {
		return guest.Never, nil
	}
	if wait := d.offUntil.Sub(now); wait > 0 {
		return wait, nil
	}
	d.read(node.Annotations)
	for {
		verdict := lifecycle.Decide(d.world(node.Annotations, now))
		if err := h.reportConfig(ctx, v, verdict.Report); err != nil {
			return 0, err
		}
		switch verdict.Do {
		case lifecycle.Rest:
			if verdict.After == 0 {
				return guest.Never, nil
			}
			return verdict.After, nil
		case lifecycle.Fetch:
			d.target = node.Annotations[prefix.DesiredConfig()]
		case lifecycle.Apply:
			d.open = &lifecycle.Open{From: d.current, Config: d.target, NeedsReboot: true, Since: now}
		case lifecycle.Act:
			d.open.IsActedOn = true
		case lifecycle.Reboot:
			d.boots++
			d.open.IsBooted, d.offUntil = true, now.Add(time.Duration(h.cloud.Settings().RebootTime))
			h.cloud.Console(v.ID, "reboots into "+d.open.Config)
			return 0, nil // The Node is not Ready now.
		case lifecycle.Finish:
			d.current, d.open = d.open.Config, nil
		case lifecycle.Repair, lifecycle.Undo:
			return 0, fmt.Errorf("daemon of VM %s: unexpected step %s", v.ID, verdict.Do)
		}
	}
}

// read reads what an earlier run of this process has reported. What was not finished then begins
// again.
func (d *daemon) read(annotations map[string]string) {
	if d.isKnown {
		return
	}
	prefix := v1alpha1.DaemonPrefix
	d.isKnown, d.current = true, annotations[prefix.CurrentConfig()]
	d.reported = lifecycle.Report{
		Current: d.current, State: v1alpha1.NodeState(annotations[prefix.State()]), Drain: annotations[prefix.DesiredDrain()],
	}
}

// world returns what the daemon knows.
func (d *daemon) world(annotations map[string]string, now time.Time) lifecycle.World {
	prefix := v1alpha1.DaemonPrefix
	desired := annotations[prefix.DesiredConfig()]
	return lifecycle.World{
		Now: now, Desired: desired, Drain: d.reported.Drain, Drained: annotations[prefix.LastAppliedDrain()], Current: d.current,
		BootID: strconv.Itoa(d.boots), Open: d.open, DrainsNode: true,
		Target: lifecycle.Target{IsKnown: d.target == desired, Digest: desired, NeedsDrain: true},
	}
}

// reportConfig writes what differs from the last report to the Node.
func (h *Host) reportConfig(ctx context.Context, v *vm, r lifecycle.Report) error {
	prefix, last := v1alpha1.DaemonPrefix, v.daemon.reported
	changes := map[string]any{}
	for key, values := range map[string][2]string{
		prefix.CurrentConfig(): {last.Current, r.Current}, prefix.State(): {string(last.State), string(r.State)},
		prefix.Reason(): {last.Reason, r.Reason}, prefix.DesiredDrain(): {last.Drain, r.Drain},
	} {
		if values[0] == values[1] {
			continue
		}
		changes[key] = values[1]
		if values[1] == "" {
			changes[key] = nil
		}
	}
	if len(changes) == 0 {
		return nil
	}
	if err := h.patchNode(ctx, v, map[string]any{"annotations": changes}, nil); err != nil {
		return fmt.Errorf("report on the configuration: %w", err)
	}
	v.daemon.reported = r
	return nil
}

// daemonAnnotations are those of a Node that its daemon reads.
func daemonAnnotations(annotations map[string]string) map[string]string {
	prefix, found := v1alpha1.DaemonPrefix, map[string]string{}
	for _, key := range []string{
		prefix.DesiredConfig(), prefix.CurrentConfig(), prefix.State(), prefix.DesiredDrain(), prefix.LastAppliedDrain(),
	} {
		if value, ok := annotations[key]; ok {
			found[key] = value
		}
	}
	return found
}

// concernsDaemon reports whether the daemon has something to do on the Node.
func concernsDaemon(node *corev1.Node) bool {
	prefix := v1alpha1.DaemonPrefix
	return node.Annotations[prefix.CurrentConfig()] != node.Annotations[prefix.DesiredConfig()] ||
		node.Annotations[prefix.State()] != string(v1alpha1.StateDone)
}
