package merge

import (
	"cmp"
	"slices"
	"time"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/fleet/v1alpha1"
)

const (
	// KeptResults is how many of the newest RenderedMachineConfigs of a pool are kept although nothing
	// names them, to go back to.
	KeptResults = 5
	// MinAge is how old a RenderedMachineConfig must be to be deleted: a Node that is being created
	// may have it and not exist yet.
	MinAge = 24 * time.Hour
)

// Uses lists all that may name a RenderedMachineConfig, read from the API server and not from a
// cache.
type Uses struct {
	// Pools are all pools.
	Pools []*v1alpha1.MachineConfigPool
	// Names are those that the annotations of all Nodes, of all Machines, and of all templates of
	// machines have.
	Names []string
}

// Disposal lists what happens to RenderedMachineConfigs, by name, sorted.
type Disposal struct {
	// Delete are to be deleted.
	Delete []string
	// Release are being deleted and lose the fleet's finalizer.
	Release []string
}

// Garbage decides on RenderedMachineConfigs. One that a pool, a Node or a Machine names is neither
// deleted nor released. Of the others the newest of each pool and those younger than MinAge are
// kept, and while a pool is updating, also all that it has rendered.
func Garbage(now time.Time, all []*v1alpha1.RenderedMachineConfig, uses Uses) Disposal {
	used := map[string]bool{}
	for _, name := range uses.Names {
		used[name] = true
	}
	updating, exists := map[string]bool{}, map[string]bool{}
	for _, pool := range uses.Pools {
		used[pool.Status.CurrentMachineConfig], used[pool.Status.CompletedMachineConfig] = true, true
		exists[pool.Name] = true
		updating[pool.Name] = pool.Status.CurrentMachineConfig != pool.Status.CompletedMachineConfig
	}
	var d Disposal
	kept := map[string]int{}
	for _, r := range newestFirst(all) {
		pool := r.Labels[v1alpha1.LabelPool]
		switch {
		case r.DeletionTimestamp != nil:
			if !used[r.Name] && slices.Contains(r.Finalizers, v1alpha1.FinalizerInUse) {
				d.Release = append(d.Release, r.Name)
			}
		case exists[pool] && kept[pool] < KeptResults:
			kept[pool]++
		case !used[r.Name] && !updating[pool] && now.Sub(r.CreationTimestamp.Time) >= MinAge:
			d.Delete = append(d.Delete, r.Name)
		}
	}
	slices.Sort(d.Delete)
	slices.Sort(d.Release)
	return d
}

func newestFirst(all []*v1alpha1.RenderedMachineConfig) []*v1alpha1.RenderedMachineConfig {
	sorted := slices.Clone(all)
	slices.SortFunc(sorted, func(a, b *v1alpha1.RenderedMachineConfig) int {
		return cmp.Or(b.CreationTimestamp.Compare(a.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	return sorted
}

// MayRelease reports whether a pool that is being deleted can be released: nothing names one of its
// RenderedMachineConfigs any more.
func MayRelease(pool string, all []*v1alpha1.RenderedMachineConfig, names []string) bool {
	return !slices.ContainsFunc(all, func(r *v1alpha1.RenderedMachineConfig) bool {
		return r.Labels[v1alpha1.LabelPool] == pool && slices.Contains(names, r.Name)
	})
}
