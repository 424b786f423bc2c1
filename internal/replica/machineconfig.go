package replica

import (
	"context"
	"strings"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	fleetv1alpha1 "github.com/machine-controller-fleet/machine-controller-fleet/apis/fleet/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machineconfig/join"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machineconfig/template"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/machineconfig/configcache"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/patch"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/runner"
	"github.com/machine-controller-fleet/machine-controller-fleet/shard/fence"
	"github.com/machine-controller-fleet/machine-controller-fleet/shard/namespacelease"
)

// machineConfiguration is shared by the controllers of machine configuration. All of it exists
// before the first controller.
type machineConfiguration struct {
	slots *slots
	cache *configcache.Cache
	// pools are the MachineConfigPools that this process has written.
	pools  *patch.Latest[*fleetv1alpha1.MachineConfigPool]
	first  *join.Source
	writer *configcache.Writer
	events targetEvents
}

// newMachineConfiguration returns nil where there is no machine configuration: it is not enabled,
// or there is no target cluster.
func newMachineConfiguration(d *deps) (*machineConfiguration, error) {
	if !d.o.Configs.Enabled || d.cluster == nil {
		return nil, nil
	}
	m := &machineConfiguration{
		slots: d.slots, pools: patch.NewLatest[*fleetv1alpha1.MachineConfigPool](),
		writer: configcache.NewWriter(d.targetConfigs), events: newTargetEvents(d),
	}
	var err error
	m.cache, err = configcache.New(configcache.Config{
		Client: d.targetConfigs, Metadata: d.targetMetadata, OwnsPool: m.ownsPool, Owns: m.owns,
	})
	if err != nil {
		return nil, err
	}
	m.first, err = join.NewSource(join.SourceConfig{Fleet: d.targetConfigs, Pools: m.cache, View: d.view})
	return m, err
}

// firstConfig returns the source of the configurations that new machines boot with; nil where there
// is no machine configuration.
func (m *machineConfiguration) firstConfig() func(context.Context, *v1alpha1.Machine) (map[string]string, string, error) {
	if m == nil {
		return nil
	}
	return m.first.Values
}

// poolWorkers is how many pools are worked on at the same time. Rendering is a matter of the
// processor.
const poolWorkers = 4

// source returns the templates.
func (o *ConfigOptions) source(control kubernetes.Interface) template.Source {
	if folder, ok := o.Folder(); ok {
		return template.Folder(folder)
	}
	if namespace, name, ok := strings.Cut(o.Templates, "/"); ok {
		return template.NewConfigMap(control.CoreV1(), types.NamespacedName{Namespace: namespace, Name: name})
	}
	return template.None{}
}

// replaces reports whether Nodes of a pool get a new configuration by being replaced: the
// MachineDeployment, which is in the slot of the pool, rolls it out so.
func (m *machineConfiguration) replaces(pool *fleetv1alpha1.MachineConfigPool) bool {
	ref := pool.Spec.MachineRef
	if ref == nil || pool.Spec.Rollout != fleetv1alpha1.RolloutMachineDeployment {
		return false
	}
	deployment, known := m.slots.view.Deployments.Get(types.NamespacedName{Namespace: ref.Namespace, Name: ref.Name})
	return known && deployment.Spec.Strategy.Type != v1alpha1.InPlaceUpdateMachineDeploymentStrategyType
}

// slotOf returns the slot of a pool: that of its MachineDeployment, if it names one, so that one
// replica decides on both. It is not ok in a namespace that another manager serves.
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
	return namespacelease.Counted(m.slots.namespaces, m.namespaceOf, fence.NewGate(m.slots.fence, func(key types.NamespacedName) (int, bool) {
		pool, known := m.cache.Pool(key.Name)
		if !known {
			return 0, false
		}
		return m.slotOf(pool)
	}))
}

// namespaceOf returns the namespace of the MachineDeployment that a pool names; "" if it names
// none.
func (m *machineConfiguration) namespaceOf(key types.NamespacedName) string {
	if pool, known := m.cache.Pool(key.Name); known && pool.Spec.MachineRef != nil {
		return pool.Spec.MachineRef.Namespace
	}
	return ""
}

// nameGate returns a Gate that admits objects without a namespace by their names.
func (m *machineConfiguration) nameGate() runner.Gate[types.NamespacedName] {
	return fence.NewGate(m.slots.fence, func(key types.NamespacedName) (int, bool) { return m.slotOfName(key.Name), true })
}
