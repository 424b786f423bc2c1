package replica

import (
	"errors"

	"k8s.io/utils/clock"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machinedeployment/rollout"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/overshoot"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/overshoot/decide"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/unmanaged"
	"github.com/machine-controller-fleet/machine-controller-fleet/shard/fence"
)

// safetyCounts returns the controllers with which the leader compares how many machines and Nodes there are with how many there should
// be, as far as the flags switch them on.
func (f *Replica) safetyCounts(o Options) (running []controller, err error) {
	gate, wall := fence.NewLeaderGate[string](f.session.fence), clock.RealClock{}
	var err1, err2 error
	if o.Safety.OvershootPeriod > 0 {
		var overshooting *overshoot.Controller
		overshooting, err1 = overshoot.New(overshoot.Config{
			Machines: f.machines.MachineV1alpha1(), Metadata: f.metadata, Events: f.recorder(v1alpha1.EventSourceSafety),
			Namespaces: f.slots.namespaces.Held, Serves: f.slots.namespaces.Holds, Most: rollout.Most,
			Limits: decide.Limits{Up: o.Safety.OvershootUp, Down: o.Safety.OvershootDown}, Period: o.Safety.OvershootPeriod,
			Gate: gate, Clock: wall, Metrics: f.metrics, Tracer: f.tracer,
		})
		running = append(running, overshooting)
		f.session.whenLeading = append(f.session.whenLeading, overshooting.Begin)
	}
	if o.Safety.OrphanVMsPeriod > 0 && f.targetMetadata != nil {
		var nodes *unmanaged.Controller
		nodes, err2 = unmanaged.New(unmanaged.Config{
			Control: f.metadata, Target: f.targetMetadata, Namespace: o.Namespace, Serves: f.slots.namespaces.Holds,
			Timeout: o.Machine.CreationTimeout, Period: o.Safety.OrphanVMsPeriod,
			Gate: gate, Clock: wall, Metrics: f.metrics, Tracer: f.tracer,
		})
		running = append(running, nodes)
		f.session.whenLeading = append(f.session.whenLeading, nodes.Begin)
	}
	return running, errors.Join(err1, err2)
}
