package configs

import (
	"cmp"
	"maps"
	"slices"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/fleet/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machineconfig/kubeletconfig/defaults"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machineconfig/kubeletconfig/fold"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machineconfig/render/merge"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/machineconfig/daemon/desired"
	daemon "github.com/machine-controller-fleet/machine-controller-fleet/internal/machineconfig/daemon/plan"
)

// Objects are those of the target cluster that configurations depend on.
type Objects struct {
	Pools          []*v1alpha1.MachineConfigPool
	MachineConfigs []*v1alpha1.MachineConfig
	KubeletConfigs []*v1alpha1.KubeletConfig
	// Rendered are the targets of pools, and the configurations that Nodes have.
	Rendered []*v1alpha1.RenderedMachineConfig
	// Controller is the ControllerConfig; nil if there is none.
	Controller *v1alpha1.ControllerConfig
}

// Change is a change of a MachineConfig or of a KubeletConfig. Before is nil if it does not exist.
type Change struct {
	ConfigBefore, ConfigAfter   *v1alpha1.MachineConfig
	KubeletBefore, KubeletAfter *v1alpha1.KubeletConfig
}

// object is an object that has a name.
type object interface{ GetName() string }

// with returns objects in which one is replaced, or added.
func with[T object](all []T, changed T) []T {
	others := slices.DeleteFunc(slices.Clone(all), func(o T) bool { return o.GetName() == changed.GetName() })
	return append(others, changed)
}

// applied returns the objects after the change.
func (o Objects) applied(c Change) Objects {
	if c.ConfigAfter != nil {
		o.MachineConfigs = with(o.MachineConfigs, c.ConfigAfter)
	}
	if c.KubeletAfter != nil {
		o.KubeletConfigs = with(o.KubeletConfigs, c.KubeletAfter)
	}
	return o
}

// fleet returns the settings that rendering depends on.
func (o Objects) fleet() (f merge.Fleet) {
	if o.Controller != nil {
		f.OSImageURL = o.Controller.Spec.OSImageURL
	}
	return f
}

// folded returns the objects with the MachineConfig that is folded of the KubeletConfigs of a pool,
// or why it stays as it is.
func (o Objects) folded(pool *v1alpha1.MachineConfigPool) (after Objects, problem string) {
	name := fold.Name(pool.Name)
	var f fold.Folded
	if len(fold.Select(pool, o.KubeletConfigs)) > 0 {
		if byDefault, err := defaults.Of(pool, o.MachineConfigs, o.fleet()); err != nil {
			f = fold.WithoutDefault(pool, o.KubeletConfigs, err)
		} else {
			f = fold.Fold(pool, byDefault, o.KubeletConfigs)
		}
	}
	switch {
	case f.Blocked:
		for _, config := range slices.Sorted(maps.Keys(f.Pools)) {
			problem = cmp.Or(problem, "KubeletConfig "+config+": "+f.Pools[config].Message)
		}
	case f.MachineConfig != nil:
		o.MachineConfigs = with(o.MachineConfigs, f.MachineConfig)
	default:
		o.MachineConfigs = slices.DeleteFunc(slices.Clone(o.MachineConfigs), func(c *v1alpha1.MachineConfig) bool {
			return c.Name == name && defaults.IsGenerated(c)
		})
	}
	return o, problem
}

// find returns a RenderedMachineConfig; nil if it was not read.
func (o Objects) find(name string) *v1alpha1.RenderedMachineConfig {
	for _, r := range o.Rendered {
		if r.Name == name {
			return r
		}
	}
	return nil
}

// render returns the target of a pool, as rendering decides it, or why the pool keeps its target.
func (o Objects) render(pool *v1alpha1.MachineConfigPool, replaces bool) (target *v1alpha1.RenderedMachineConfig, problem string) {
	if pool.Spec.Paused {
		return nil, "the pool is paused, and gets no other configuration until it is not"
	}
	w := merge.World{Pool: pool, Configs: o.MachineConfigs, Fleet: o.fleet(), Replaced: replaces}
	if current := o.find(pool.Status.CurrentMachineConfig); current != nil {
		w.Rendered = append(w.Rendered, current)
	}
	v := merge.Prepare(w).Decide(w)
	switch {
	case v.Target == "":
		return nil, v.Condition.Message
	case v.Create != nil:
		return v.Create, ""
	}
	return o.find(v.Target), ""
}

// difference has the actions of a Node that gets from a configuration to another one.
type difference struct {
	actions daemon.Actions
	changes []string // paths and fields
	problem string
}

// differ returns what a Node does to get from one configuration to another one. Where the first one
// is not known, or one of them cannot be read, it reboots.
func differ(before, after *v1alpha1.RenderedMachineConfig) difference {
	reboots := daemon.Actions{Reboot: true}
	if before == nil {
		return difference{actions: reboots, problem: "the configuration that it has cannot be read"}
	}
	was, err := desired.FromObject(before)
	if err != nil {
		return difference{actions: reboots, problem: err.Error()}
	}
	is, err := desired.FromObject(after)
	if err != nil {
		return difference{actions: reboots, problem: err.Error()}
	}
	machine := desired.Machine{Users: map[string]desired.User{
		"root": {Home: "/root"}, "core": {UID: 1000, GID: 1000, Home: "/home/core"},
	}, Groups: map[string]int{"root": 0, "core": 1000}}
	from, to := was.Tree(machine), is.Tree(machine)
	w := daemon.World{
		Managed: map[string]daemon.Managed{}, Desired: to.Entries, Directories: to.Directories,
		Observed: daemon.Observed{Paths: map[string]daemon.State{}, Folders: map[string]daemon.Kind{}},
	}
	for path, e := range from.Entries {
		w.Managed[path] = daemon.Managed{State: e.Want, Original: daemon.State{Kind: daemon.Absent}, Unit: e.Unit, Keys: e.Keys}
		w.Observed.Paths[path] = e.Want
	}
	paths := append(slices.Collect(maps.Keys(from.Entries)), slices.Collect(maps.Keys(to.Entries))...)
	for _, folder := range daemon.Folders(paths) {
		w.Observed.Folders[folder] = daemon.Folder
	}
	p := daemon.Compute(w)
	fields := append(slices.Collect(maps.Keys(was.Fields)), slices.Collect(maps.Keys(is.Fields))...)
	claims, _ := daemon.Compare(was.Fields, is.Fields, fields) // as if there were a hook for each
	d := difference{actions: is.Policy.Actions(p.Steps, claims)}
	for _, step := range p.Steps {
		d.changes = append(d.changes, step.Path)
	}
	for _, claim := range claims {
		d.changes = append(d.changes, claim.Field)
	}
	for _, refused := range p.Refused {
		d.problem = cmp.Or(d.problem, refused.Field+": "+refused.Message)
	}
	return d
}
