package replica

import (
	"context"

	fleetv1alpha1 "github.com/machine-controller-fleet/machine-controller-fleet/apis/fleet/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machine"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machineconfig/bootstrap"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machineconfig/join"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machinedeployment/rollout"
)

// firstConfig returns the source of the configurations that new machines boot with; nil where there is no machine configuration.
func (f *Replica) firstConfig(o Options) func(context.Context, *v1alpha1.Machine) (map[string]string, string, error) {
	if !o.Configs.Enabled || f.cluster == nil {
		return nil
	}
	return func(ctx context.Context, m *v1alpha1.Machine) (map[string]string, string, error) {
		return f.slots.configs.first.Values(ctx, m) // made by joinMachines, before anything runs
	}
}

// joinMachines returns the controller that joins pools with MachineDeployments, and has new machines boot with the configuration of their pool.
func (m *machineConfiguration) joinMachines(o Options, f *Replica, machines *machine.Controller) (controller, error) {
	m.first = bootstrap.New(bootstrap.Config{Fleet: f.targetConfigs, Pools: m.cache, View: f.view})
	m.cache.OnPool(func(_, _ *fleetv1alpha1.MachineConfigPool) { machines.FirstConfigChanged() })
	return join.New(join.Config{
		Machines: f.machines.MachineV1alpha1(), Fleet: f.targetConfigs, Pools: m.cache, View: f.view, Cluster: f.cluster, NewSet: rollout.NewSet,
		Prefix: fleetv1alpha1.AnnotationPrefix(o.Configs.Prefix), Events: f.recorder(v1alpha1.EventSourceMachineDeployment), Clock: f.wall,
		Gate: m.poolGate(), Workers: o.ConcurrentSyncs, Metrics: f.metrics, Tracer: f.tracer,
	})
}
