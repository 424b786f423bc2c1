package stamp

import (
	"cmp"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/fleet/v1alpha1"
	machinev1alpha1 "github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
)

// KindDeployment and KindSet are the kinds that a pool refers to.
const (
	KindDeployment = "MachineDeployment"
	KindSet        = "MachineSet"
)

// ReferenceTo returns how a pool refers to a root: a MachineDeployment, or a MachineSet without
// one.
func ReferenceTo(root metav1.Object) v1alpha1.MachineReference {
	ref := v1alpha1.MachineReference{Kind: KindSet, Namespace: root.GetNamespace(), Name: root.GetName()}
	if _, is := root.(*machinev1alpha1.MachineDeployment); is {
		ref.Kind = KindDeployment
	}
	return ref
}

// Referring returns the pools that refer to an object. The first one has its machines: the oldest,
// and of several the first by name.
func Referring(pools []*v1alpha1.MachineConfigPool, root v1alpha1.MachineReference) []*v1alpha1.MachineConfigPool {
	var all []*v1alpha1.MachineConfigPool
	for _, pool := range pools {
		if pool.Spec.MachineRef != nil && *pool.Spec.MachineRef == root {
			all = append(all, pool)
		}
	}
	slices.SortFunc(all, func(a, b *v1alpha1.MachineConfigPool) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	return all
}

// HasMachines reports whether the machines of the object that a pool refers to are those of the
// pool, and of no older one.
func HasMachines(pools []*v1alpha1.MachineConfigPool, pool *v1alpha1.MachineConfigPool) bool {
	referring := Referring(pools, *pool.Spec.MachineRef)
	return len(referring) > 0 && referring[0].UID == pool.UID
}

// IsByDeployment reports whether the strategy of a MachineDeployment brings Nodes of the pool to a
// new configuration.
func IsByDeployment(pool *v1alpha1.MachineConfigPool) bool {
	ref := pool.Spec.MachineRef
	return pool.Spec.Rollout == v1alpha1.RolloutMachineDeployment && ref != nil && ref.Kind == KindDeployment
}

// isOf reports whether a configuration was rendered for a pool, by its name.
func isOf(config string, pool *v1alpha1.MachineConfigPool) bool {
	return v1alpha1.PoolOfRendered(config) == pool.Name
}
