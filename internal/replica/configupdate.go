package replica

import (
	"context"

	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	fleetv1alpha1 "github.com/machine-controller-fleet/machine-controller-fleet/apis/fleet/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/client/clientset/versioned/scheme"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machine"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machineconfig/render"
	configupdate "github.com/machine-controller-fleet/machine-controller-fleet/controllers/machineconfig/update"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machinedeployment/rollout"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/telemetry"
)

// newUpdate returns the controller that brings Nodes to the targets of their pools. It drains them with the drains of the machine
// controller: the limits on moving volumes hold for both.
func (m *machineConfiguration) newUpdate(o Options, f *Replica, machines *machine.Controller, renders *render.Controller, recorder events.EventRecorder) (*configupdate.Controller, error) {
	c, err := configupdate.New(configupdate.Config{
		Pools: m.cache, Owns: m.ownsPool, Fleet: f.targetConfigs, Written: m.pools, Cluster: f.cluster,
		View: f.view, Metadata: f.metadata, Namespace: o.Namespace, IsNewSet: rollout.IsNewSet,
		Drains: machines.Drains(), Drain: o.Drain, Servers: f.outages(), Held: f.holds.Held,
		NodeChanged: renders.NodeChanged, Prefix: fleetv1alpha1.AnnotationPrefix(o.Configs.Prefix), Events: recorder,
		Clock: f.wall, Gate: m.poolGate(), Workers: poolWorkers, Metrics: f.metrics, Tracer: f.tracer,
	})
	if err != nil {
		return nil, err
	}
	f.holds.OnChange(c.HoldChanged)
	for _, server := range f.servers() {
		server.OnChange(c.ServerChanged)
	}
	f.collectors = append(f.collectors, c.Collectors(m.slots.fence.Acts)...)
	return c, nil
}

// targetEvents records Events about objects of the target cluster there.
type targetEvents struct{ events.EventBroadcaster }

func newTargetEvents(o Options, f *Replica) targetEvents {
	return targetEvents{events.NewBroadcaster(telemetry.ByReplica(&events.EventSinkImpl{Interface: f.target.EventsV1()}, o.Name))}
}

func (t targetEvents) recorder(source string) events.EventRecorder {
	return telemetry.Damped(t.NewRecorder(scheme.Scheme, source), clock.RealClock{})
}

// Run sends Events until ctx ends.
func (t targetEvents) Run(ctx context.Context) {
	defer t.Shutdown()
	if err := t.StartRecordingToSinkWithContext(ctx); err != nil {
		klog.FromContext(ctx).Error(err, "Failed to start to record Events in the target cluster")
		return
	}
	<-ctx.Done()
}
