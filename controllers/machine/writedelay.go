package machine

import (
	"time"

	apiequality "k8s.io/apimachinery/pkg/api/equality"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machine/lifecycle"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/drainer/drain"
)

// writeDelay returns for how long a write of the machine must wait; 0 means not at all. The status of a machine with a VM follows from
// its Node, which the kubelet can change many times per second: without a limit, each change would become a write to the control
// cluster. A verdict that has to wait is dropped, and the next pass observes anew.
func (c *Controller) writeDelay(p *pass, verdict lifecycle.Verdict) time.Duration {
	m := p.world.Machine
	if verdict.Machine == nil || !followsNode(m, p.world.Drain) || apiequality.Semantic.DeepEqual(m, verdict.Machine) {
		return 0
	}
	return c.writes.Wait(m.UID, p.world.Now)
}

// followsNode reports whether the status of a machine follows from its Node and nothing else: the machine has a VM, which is neither
// being deleted, but for a drain that goes on, nor updated in place.
func followsNode(m *v1alpha1.Machine, is drain.Report) bool {
	switch m.Status.CurrentStatus.Phase { //nolint:exhaustive // in all others an action on the VM is due
	case v1alpha1.MachinePending, v1alpha1.MachineRunning, v1alpha1.MachineUnknown, v1alpha1.MachineFailed:
		return m.DeletionTimestamp == nil
	case v1alpha1.MachineTerminating:
		return is.State == drain.Draining
	}
	return false
}
