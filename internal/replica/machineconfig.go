package replica

import (
	"errors"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	fleetv1alpha1 "github.com/machine-controller-fleet/machine-controller-fleet/apis/fleet/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machine"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machineconfig/bootstrap"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machineconfig/kubeletconfig"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machineconfig/render"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machineconfig/template"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/machineconfig/configcache"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/machineconfig/generated"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/patch"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/runner"
	"github.com/machine-controller-fleet/machine-controller-fleet/shard/fence"
)

// machineConfiguration is what the controllers of machine configuration share.
type machineConfiguration struct {
	slots *slots
	cache *configcache.Cache
	// pools are the MachineConfigPools that this process has written.
	pools *patch.Latest[*fleetv1alpha1.MachineConfigPool]
	first *bootstrap.Source
}

// newMachineConfiguration wires machine configuration, and returns what has to run for it: nothing when it is not enabled. There is a target cluster.
func newMachineConfiguration(o Options, f *Replica, machines *machine.Controller) ([]controller, error) {
	if !o.Configs.Enabled {
		return nil, nil
	}
	m := &machineConfiguration{slots: f.slots, pools: patch.NewLatest[*fleetv1alpha1.MachineConfigPool]()}
	m.cache = configcache.New(configcache.Config{
		Client: f.targetConfigs, Metadata: f.targetMetadata, OwnsPool: m.ownsPool, Owns: m.owns,
	})
	m.cache.OnPool(func(before, after *fleetv1alpha1.MachineConfigPool) {
		if after == nil {
			m.pools.Forget(before.UID)
		}
	})
	f.slots.configs = m
	f.slots.namespaces.OnChange(func(string) { m.look() })
	recorded := newTargetEvents(o, f)
	recorder := recorded.recorder(v1alpha1.EventSourceMachineConfig)
	configs := generated.NewWriter(f.targetConfigs)
	renders, err0 := render.New(render.Config{
		Client: f.targetConfigs, Target: f.targetMetadata, Machines: f.machines.MachineV1alpha1(), Control: f.metadata, Namespace: o.Namespace,
		Cache: m.cache, View: f.view, Nodes: f.cluster.Nodes, Written: m.pools, Prefix: fleetv1alpha1.AnnotationPrefix(o.Configs.Prefix),
		Extensions: o.Configs.Extensions, Replaces: m.replaces,
		Events: recorder, Deletions: f.deletions, Gate: m.poolGate(), Clock: f.wall, Workers: poolWorkers, Metrics: f.metrics, Tracer: f.tracer,
	})
	if err0 != nil {
		return nil, err0
	}
	updates, err1 := m.newUpdate(o, f, machines, renders, recorder)
	kubelets, err2 := kubeletconfig.New(kubeletconfig.Config{
		Client: f.targetConfigs, Cache: m.cache, Configs: configs, Extensions: o.Configs.Extensions, Events: recorder,
		PoolGate: m.poolGate(), NameGate: m.nameGate(), Clock: f.wall, Workers: poolWorkers, Metrics: f.metrics, Tracer: f.tracer,
	})
	templates, err3 := template.New(template.Config{
		Client: f.targetConfigs, Cache: m.cache, Configs: configs, Secrets: f.target.CoreV1(), Templates: o.Configs.source(f), Extensions: o.Configs.Extensions,
		Events: recorder, Gate: m.nameGate(), Clock: f.wall, Metrics: f.metrics, Tracer: f.tracer,
	})
	joined, err4 := m.joinMachines(o, f, machines)
	if err := errors.Join(err1, err2, err3, err4); err != nil {
		return nil, err
	}
	f.view.Deployments.OnChange(func(before, after *v1alpha1.MachineDeployment) { m.deploymentChanged(renders, before, after) })
	f.collectors = append(f.collectors, renders.Collectors(f.session.fence.Acts)...)
	return []controller{recorded, m.cache, renders, kubelets, templates, updates, joined}, nil
}

// poolWorkers is how many pools are worked on at the same time. Rendering is a matter of the processor.
const poolWorkers = 4

// source returns the templates.
func (o *ConfigOptions) source(f *Replica) template.Source {
	if folder, ok := o.Folder(); ok {
		return template.Folder(folder)
	}
	if namespace, name, ok := strings.Cut(o.Templates, "/"); ok {
		return template.NewConfigMap(f.control.CoreV1(), types.NamespacedName{Namespace: namespace, Name: name})
	}
	return template.None{}
}

// replaces reports whether Nodes of a pool get a new configuration by being replaced: the MachineDeployment, which is in the slot of the pool,
// rolls it out so.
func (m *machineConfiguration) replaces(pool *fleetv1alpha1.MachineConfigPool) bool {
	ref := pool.Spec.MachineRef
	if ref == nil || pool.Spec.Rollout != fleetv1alpha1.RolloutMachineDeployment {
		return false
	}
	deployment, known := m.slots.view.Deployments.Get(types.NamespacedName{Namespace: ref.Namespace, Name: ref.Name})
	return known && deployment.Spec.Strategy.Type != v1alpha1.InPlaceUpdateMachineDeploymentStrategyType
}

// deploymentChanged enqueues the pools of a MachineDeployment that appears, or whose strategy changes: what Nodes can get depends on it.
func (m *machineConfiguration) deploymentChanged(renders *render.Controller, before, after *v1alpha1.MachineDeployment) {
	if after == nil || before != nil && before.Spec.Strategy.Type == after.Spec.Strategy.Type {
		return
	}
	for _, pool := range m.cache.Pools() {
		if ref := pool.Spec.MachineRef; ref != nil && ref.Namespace == after.Namespace && ref.Name == after.Name {
			renders.Enqueue(pool.Name)
		}
	}
}

// look has the controllers look at what this replica may work on now. It returns at once.
func (m *machineConfiguration) look() {
	if m != nil {
		m.cache.Look()
	}
}

// slotOf returns the slot of a pool: that of its MachineDeployment, if it names one, so that one replica decides on both. It is not ok
// in a namespace that another manager serves.
func (m *machineConfiguration) slotOf(pool *fleetv1alpha1.MachineConfigPool) (slot int, ok bool) {
	ref := pool.Spec.MachineRef
	if ref == nil {
		return m.slotOfName(pool.Name), true
	}
	return m.slots.spread.Of(ref.Namespace, ref.Name), !m.slots.namespaces.KeptOut(ref.Namespace)
}

// slotOfName returns the slot of an object without a namespace.
func (m *machineConfiguration) slotOfName(name string) int { return m.slots.spread.Of("", name) }

func (m *machineConfiguration) ownsPool(pool *fleetv1alpha1.MachineConfigPool) bool {
	slot, ok := m.slotOf(pool)
	return ok && m.slots.fence.Holds(slot)
}

func (m *machineConfiguration) owns(name string) bool { return m.slots.fence.Holds(m.slotOfName(name)) }

// poolGate returns a Gate that admits pools by their slot.
func (m *machineConfiguration) poolGate() runner.Gate[types.NamespacedName] {
	return fence.NewGate(m.slots.fence, func(key types.NamespacedName) (int, bool) {
		pool, known := m.cache.Pool(key.Name)
		if !known {
			return 0, false
		}
		return m.slotOf(pool)
	})
}

// nameGate returns a Gate that admits objects without a namespace by their names.
func (m *machineConfiguration) nameGate() runner.Gate[types.NamespacedName] {
	return fence.NewGate(m.slots.fence, func(key types.NamespacedName) (int, bool) { return m.slotOfName(key.Name), true })
}
