package main

import (
	"k8s.io/utils/clock"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machinedeployment/rollout"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/safety"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/safety/overshoot"
	"github.com/machine-controller-fleet/machine-controller-fleet/shard/fence"
)

// safetyCounts returns the controllers with which the leader compares how many machines there are with how many there should be,
// as far as the flags switch them on.
func (f *fleet) safetyCounts(o options) (running []controller, err error) {
	gate, wall := fence.NewLeaderGate[string](f.session.fence), clock.RealClock{}
	var err1 error
	if o.safety.overshootPeriod > 0 {
		var overshooting *safety.Overshooting
		overshooting, err1 = safety.NewOvershooting(safety.OvershootingConfig{
			Machines: f.machines.MachineV1alpha1(), Metadata: f.metadata, Events: f.recorder(v1alpha1.EventSourceSafety),
			Namespaces: f.slots.namespaces.Held, Serves: f.slots.namespaces.Holds, Most: rollout.Most,
			Limits: overshoot.Limits{Up: o.safety.overshootUp, Down: o.safety.overshootDown}, Period: o.safety.overshootPeriod,
			Gate: gate, Clock: wall, Metrics: f.metrics, Tracer: f.tracer,
		})
		running = append(running, overshooting)
		f.session.whenLeading = append(f.session.whenLeading, overshooting.Begin)
	}
	return running, err1
}
