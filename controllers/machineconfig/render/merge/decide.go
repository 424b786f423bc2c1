package merge

import (
	"errors"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/fleet/v1alpha1"
)

const (
	// Settle is how long a pool waits after a change for the next one, so that changes which belong
	// together are one.
	Settle = 5 * time.Second
	// MaxSettle is how long it waits at most while changes go on.
	MaxSettle = 30 * time.Second
)

// World contains all that the decision on a pool needs.
type World struct {
	Now  time.Time
	Pool *v1alpha1.MachineConfigPool
	// Configs are all MachineConfigs.
	Configs []*v1alpha1.MachineConfig
	// Rendered are the RenderedMachineConfigs of the pool, with the contents of those that
	// Result.Needs names.
	Rendered []*v1alpha1.RenderedMachineConfig
	// Verified are the names of those whose content is known to be that of their names.
	Verified map[string]bool
	Fleet    Fleet
	// FirstChange and LastChange are when inputs have changed since the pool was last rendered; zero
	// when they have not.
	FirstChange, LastChange time.Time
	// Replaced means that Nodes get a new configuration by being replaced, and any change is possible.
	Replaced bool
}

// Verdict lists what to do. The zero Verdict is to do nothing.
type Verdict struct {
	// Create is a RenderedMachineConfig to create before the status is written. Nil when it exists.
	Create *v1alpha1.RenderedMachineConfig
	// Target is for the status: CurrentMachineConfig. It is empty when the status stays as it is but
	// for the condition.
	Target string
	// Abandoned is for the status: AbandonedMachineConfigs.
	Abandoned []string
	// Sources are for the status.
	Sources []string
	// Condition is RenderDegraded. Nil leaves it as it is.
	Condition *metav1.Condition
	// Warnings are about the MachineConfigs.
	Warnings []string
}

// Due reports whether a pool is to be rendered now. It is not while it is deleted or paused, nor
// for wait after a change.
func Due(w World) (wait time.Duration, due bool) {
	if w.Pool.DeletionTimestamp != nil || w.Pool.Spec.Paused {
		return 0, false
	}
	wait = settle(w)
	return wait, wait == 0
}

// settle returns how long to wait for further changes.
func settle(w World) time.Duration {
	if w.LastChange.IsZero() {
		return 0
	}
	return max(min(w.LastChange.Add(Settle).Sub(w.Now), w.FirstChange.Add(MaxSettle).Sub(w.Now)), 0)
}

// Result is the result of the MachineConfigs of a pool, before it is compared with what exists.
type Result struct {
	name    string
	sources []string
	merged  Merged
	err     error // a *Error
}

// Prepare selects and merges the MachineConfigs of a pool. World.Rendered is not needed.
func Prepare(w World) Result {
	r, err := prepare(w)
	r.err = err
	return r
}

func prepare(w World) (r Result, err error) {
	if len(w.Pool.Name) > v1alpha1.MaxPoolName {
		return r, &Error{Reason: ReasonInvalidPool, Fact: fmt.Sprintf("the name of a pool must have at most %d characters, got %d",
			v1alpha1.MaxPoolName, len(w.Pool.Name))}
	}
	if err := checkActions(w.Pool.Spec.Actions); err != nil {
		return r, err
	}
	selected, err := Select(w.Pool, w.Configs)
	if err != nil {
		return r, err
	}
	for _, c := range selected {
		r.sources = append(r.sources, c.Name)
	}
	if r.merged, err = Merge(selected, w.Pool.Spec.Actions, w.Fleet); err != nil {
		return r, err
	}
	if r.name, err = v1alpha1.RenderedName(w.Pool.Name, &r.merged.Spec); err != nil {
		return r, &Error{Reason: ReasonInvalidResult, Fact: err.Error()}
	}
	return r, nil
}

// Needs returns the names of the RenderedMachineConfigs whose contents are needed for the decision,
// as far as they exist: the target that Nodes have, when there is another one, and one with the
// name of the result, unless its content is known to be that of its name.
func (r Result) Needs(w World) (names []string) {
	if r.err != nil {
		return nil
	}
	if target := w.Pool.Status.CurrentMachineConfig; target != "" && target != r.name && !w.Replaced {
		names = append(names, target)
	}
	if !w.Verified[r.name] {
		names = append(names, r.name)
	}
	return names
}

// Decide returns what to do for a pool that is due.
func (r Result) Decide(w World) Verdict {
	v, err := r.decide(w)
	if err != nil {
		return Verdict{Condition: condition(w.Pool, err)}
	}
	v.Condition = condition(w.Pool, nil)
	return v
}

// decide returns the verdict without its condition. Errors: a *Error.
func (r Result) decide(w World) (Verdict, error) {
	if r.err != nil {
		return Verdict{}, r.err
	}
	target := w.Pool.Status.CurrentMachineConfig
	current := named(w.Rendered, target)
	if r.name != target && current != nil && current.Verify() && !w.Replaced {
		if problem := Irreconcilable(&current.Spec, r.merged); problem != nil {
			return Verdict{}, problem
		}
	}
	v := Verdict{Target: r.name, Abandoned: Abandoned(w.Pool.Status, r.name), Sources: r.sources, Warnings: r.merged.Warnings}
	switch existing := named(w.Rendered, r.name); {
	case existing == nil:
		v.Create = created(w.Pool, r.name, r.merged.Spec)
	case existing.DeletionTimestamp != nil || !w.Verified[r.name] && !existing.Verify():
		return Verdict{}, &Error{Reason: ReasonNameTaken, Fact: fmt.Sprintf(
			"RenderedMachineConfig %s is being deleted, or its content is not the one that its name stands for. "+
				"It is created again when it is gone: delete it, and remove its finalizers if no Node names it.", r.name)}
	}
	return v, nil
}

// created returns the object to create.
func created(pool *v1alpha1.MachineConfigPool, name string, spec v1alpha1.RenderedMachineConfigSpec) *v1alpha1.RenderedMachineConfig {
	return &v1alpha1.RenderedMachineConfig{
		ObjectMeta: metav1.ObjectMeta{
			Name:       name,
			Labels:     map[string]string{v1alpha1.LabelPool: pool.Name},
			Finalizers: []string{v1alpha1.FinalizerInUse},
		},
		Spec: spec,
	}
}

// mostAbandoned is how many abandoned targets are remembered.
const mostAbandoned = 10

// Abandoned returns the targets that were given up before all Nodes had them, oldest first, when
// the target moves to another one. A Node may be broken by one of them, or get there yet: it may
// have begun before the target moved. So none leaves the list because another target was complete,
// and all leave it by their number.
func Abandoned(s v1alpha1.MachineConfigPoolStatus, next string) []string {
	last := s.CurrentMachineConfig
	if last == next {
		return s.AbandonedMachineConfigs
	}
	all := slices.DeleteFunc(slices.Clone(s.AbandonedMachineConfigs), func(name string) bool { return name == next || name == last })
	if last != "" && last != s.CompletedMachineConfig {
		all = append(all, last)
	}
	return all[max(len(all)-mostAbandoned, 0):]
}

func named(all []*v1alpha1.RenderedMachineConfig, name string) *v1alpha1.RenderedMachineConfig {
	if at := slices.IndexFunc(all, func(r *v1alpha1.RenderedMachineConfig) bool { return r.Name == name }); at >= 0 {
		return all[at]
	}
	return nil
}

// condition returns RenderDegraded for the result of rendering.
func condition(pool *v1alpha1.MachineConfigPool, err error) *metav1.Condition {
	c := &metav1.Condition{
		Type: v1alpha1.PoolRenderDegraded, Status: metav1.ConditionFalse, Reason: ReasonRendered,
		Message: "The target is what the selected MachineConfigs result in.", ObservedGeneration: pool.Generation,
	}
	if problem, ok := errors.AsType[*Error](err); ok {
		c.Status, c.Reason, c.Message = metav1.ConditionTrue, problem.Reason, problem.Error()
	}
	return c
}
