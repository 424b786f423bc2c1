package replica

import (
	"context"

	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	fleetv1alpha1 "github.com/machine-controller-fleet/machine-controller-fleet/apis/fleet/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/client/clientset/versioned/scheme"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machineconfig/join"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machineconfig/kubeletconfig"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machineconfig/render"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machineconfig/template"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machineconfig/update"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machinedeployment/rollout"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/telemetry"
)

// addRenders adds the controller of MachineConfigPools, with the cache and the Events of all of
// machine configuration.
func (c *controllers) addRenders(d *deps) (err error) {
	m, o := d.configs, d.o
	if m == nil {
		return nil
	}
	c.renders, err = render.New(render.Config{
		Client: d.targetConfigs, Target: d.targetMetadata, Machines: d.machines.MachineV1alpha1(), Control: d.metadata, Namespace: o.Namespace,
		Cache: m.cache, View: d.view, Nodes: d.cluster.Nodes, Written: m.pools, Prefix: o.Configs.prefix(),
		Extensions: o.Configs.Extensions, Replaces: m.replaces,
		Events: m.recorder(), Deletions: d.deletions, Gate: m.poolGate(), Clock: d.wall, Workers: poolWorkers, Metrics: d.metrics,
		Tracer: d.tracer,
	})
	if err != nil {
		return err
	}
	c.add(m.events)
	c.add(m.cache)
	c.add(c.renders, c.renders.Collectors(d.session.fence.Acts)...)
	return nil
}

// addUpdates adds the controller that brings Nodes to the targets of their pools. It drains them
// with the drains of the machine controller: the limits on moving volumes hold for both.
func (c *controllers) addUpdates(d *deps) (err error) {
	m := d.configs
	if m == nil {
		return nil
	}
	c.updates, err = update.New(update.Config{
		Pools: m.cache, Owns: m.ownsPool, Fleet: d.targetConfigs, Written: m.pools, Cluster: d.cluster,
		View: d.view, Metadata: d.metadata, Namespace: d.o.Namespace, IsNewSet: rollout.IsNewSet,
		Drains: c.machines.Drains(), Drain: d.o.Drain, Servers: d.outages(), Held: d.holds.Held,
		NodeChanged: c.renders.NodeChanged, Prefix: d.o.Configs.prefix(), Events: m.recorder(),
		Clock: d.wall, Gate: m.poolGate(), Workers: poolWorkers, Metrics: d.metrics, Tracer: d.tracer,
	})
	if err != nil {
		return err
	}
	c.add(c.updates, c.updates.Collectors(d.session.fence.Acts)...)
	return nil
}

// addKubeletConfigs adds the controller of KubeletConfigs.
func (c *controllers) addKubeletConfigs(d *deps) error {
	m := d.configs
	if m == nil {
		return nil
	}
	kubelets, err := kubeletconfig.New(kubeletconfig.Config{
		Client: d.targetConfigs, Cache: m.cache, Configs: m.writer, Extensions: d.o.Configs.Extensions, Events: m.recorder(),
		PoolGate: m.poolGate(), NameGate: m.nameGate(), Clock: d.wall, Workers: poolWorkers, Metrics: d.metrics, Tracer: d.tracer,
	})
	if err != nil {
		return err
	}
	c.add(kubelets)
	return nil
}

// addTemplates adds the controller of templates of MachineConfigs.
func (c *controllers) addTemplates(d *deps) error {
	m := d.configs
	if m == nil {
		return nil
	}
	templates, err := template.New(template.Config{
		Client: d.targetConfigs, Cache: m.cache, Configs: m.writer, Secrets: d.target.CoreV1(), Templates: d.o.Configs.source(d.control),
		Extensions: d.o.Configs.Extensions,
		Events:     m.recorder(), Gate: m.nameGate(), Clock: d.wall, Metrics: d.metrics, Tracer: d.tracer,
	})
	if err != nil {
		return err
	}
	c.add(templates)
	return nil
}

// addJoins adds the controller that joins pools with MachineDeployments.
func (c *controllers) addJoins(d *deps) error {
	m := d.configs
	if m == nil {
		return nil
	}
	joins, err := join.New(join.Config{
		Machines: d.machines.MachineV1alpha1(), Fleet: d.targetConfigs, Pools: m.cache, View: d.view, Cluster: d.cluster, NewSet: rollout.NewSet,
		Prefix: d.o.Configs.prefix(), Events: d.recorder(v1alpha1.EventSourceMachineDeployment), Clock: d.wall,
		Gate: m.poolGate(), Workers: d.o.ConcurrentSyncs, Metrics: d.metrics, Tracer: d.tracer,
	})
	if err != nil {
		return err
	}
	c.add(joins)
	return nil
}

// prefix returns the prefix of the annotations through which the fleet and the daemon work
// together.
func (o *ConfigOptions) prefix() fleetv1alpha1.AnnotationPrefix {
	return fleetv1alpha1.AnnotationPrefix(o.Prefix)
}

// recorder returns the recorder of Events of machine configuration, in the target cluster.
func (m *machineConfiguration) recorder() events.EventRecorder {
	return m.events.recorder(v1alpha1.EventSourceMachineConfig)
}

// targetEvents records Events about objects of the target cluster there.
type targetEvents struct{ events.EventBroadcaster }

func newTargetEvents(d *deps) targetEvents {
	return targetEvents{events.NewBroadcaster(telemetry.ByReplica(&events.EventSinkImpl{Interface: d.target.EventsV1()}, d.o.Name))}
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
