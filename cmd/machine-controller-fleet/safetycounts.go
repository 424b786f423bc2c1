package main

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
func (f *fleet) safetyCounts(o options) (running []controller, err error) {
	gate, wall := fence.NewLeaderGate[string](f.session.fence), clock.RealClock{}
	var err1, err2 error
	if o.safety.overshootPeriod > 0 {
		var overshooting *overshoot.Controller
		overshooting, err1 = overshoot.New(overshoot.Config{
			Machines: f.machines.MachineV1alpha1(), Metadata: f.metadata, Events: f.recorder(v1alpha1.EventSourceSafety),
			Namespaces: f.slots.namespaces.Held, Serves: f.slots.namespaces.Holds, Most: rollout.Most,
			Limits: decide.Limits{Up: o.safety.overshootUp, Down: o.safety.overshootDown}, Period: o.safety.overshootPeriod,
			Gate: gate, Clock: wall, Metrics: f.metrics, Tracer: f.tracer,
		})
		running = append(running, overshooting)
		f.session.whenLeading = append(f.session.whenLeading, overshooting.Begin)
	}
	if o.safety.orphanVMsPeriod > 0 && f.targetMetadata != nil {
		var nodes *unmanaged.Controller
		nodes, err2 = unmanaged.New(unmanaged.Config{
			Control: f.metadata, Target: f.targetMetadata, Namespace: o.namespace, Serves: f.slots.namespaces.Holds,
			Timeout: o.machine.creationTimeout, Period: o.safety.orphanVMsPeriod,
			Gate: gate, Clock: wall, Metrics: f.metrics, Tracer: f.tracer,
		})
		running = append(running, nodes)
		f.session.whenLeading = append(f.session.whenLeading, nodes.Begin)
	}
	return running, errors.Join(err1, err2)
}
