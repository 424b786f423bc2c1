package main

import (
	"k8s.io/apimachinery/pkg/types"

	fleetv1alpha1 "github.com/machine-controller-fleet/machine-controller-fleet/apis/fleet/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machine"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machineconfig/configcache"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/flags"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/patch"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/runner"
	"github.com/machine-controller-fleet/machine-controller-fleet/shard/fence"
)

// machineConfigOptions are the flags of machine configuration.
type machineConfigOptions struct {
	enabled bool
}

func (o *machineConfigOptions) declare(g *flags.Group) {
	g.Bool(&o.enabled, "machine-configuration", false, "bring Nodes of the target cluster to the configuration of their MachineConfigPool; needs the definitions of "+fleetv1alpha1.GroupName+" there")
}

// machineConfiguration is what the controllers of machine configuration share.
type machineConfiguration struct {
	slots *slots
	cache *configcache.Cache
	// pools are the MachineConfigPools that this process has written.
	pools *patch.Latest[*fleetv1alpha1.MachineConfigPool]
}

// newMachineConfiguration wires machine configuration, and returns what has to run for it: nothing when it is not enabled. There is a target cluster.
func newMachineConfiguration(o options, f *fleet, machines *machine.Controller) ([]controller, error) {
	if !o.configs.enabled {
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
	updates, err := m.newUpdate(o, f, machines, recorded.recorder(v1alpha1.EventSourceMachineConfig))
	if err != nil {
		return nil, err
	}
	return []controller{m.cache, recorded, updates}, nil
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
