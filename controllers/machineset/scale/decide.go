package scale

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1/validation"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/deletion/receipt"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/machinefacts"
)

// Decide returns the next action. It is total: every world has a verdict.
func Decide(w World) Verdict {
	if w.Set.Labels[v1alpha1.LabelSlot] == "" {
		return Verdict{Do: Rest} // without a slot it has no holder, and neither would its machines
	}
	if w.Set.DeletionTimestamp != nil {
		return decideDelete(w)
	}
	if errs := validation.ValidateMachineSet(w.Set); len(errs) > 0 {
		return invalid(w, validation.Reason(errs), errs.ToAggregate().Error())
	}
	selector, err := metav1.LabelSelectorAsSelector(w.Set.Spec.Selector)
	if err != nil {
		return invalid(w, v1alpha1.ReasonInvalidSpec, "spec.selector: "+err.Error())
	}
	in, err := machinefacts.ReadIntents(w.Set)
	if err != nil {
		return invalid(w, v1alpha1.ReasonInvalidSpec, err.Error())
	}
	if !slices.Contains(w.Set.Finalizers, v1alpha1.FinalizerName) {
		set := w.Set.DeepCopy()
		set.Finalizers = append(set.Finalizers, v1alpha1.FinalizerName)
		return Verdict{Do: Save, Set: set}
	}
	if v, requested := unfreeze(w); requested {
		return v
	}
	if w.MustListOrphans {
		return Verdict{Do: ListLive}
	}
	if v, moved := adopt(w, selector); moved {
		return v
	}
	if w.MustCheckClass && !w.ClassCheckLast {
		return Verdict{Do: CheckClass}
	}
	if v, more := carryOut(w, in); more {
		return v
	}
	v := balance(w, in)
	if v.Do == Rest && w.MustCheckClass {
		return Verdict{Do: CheckClass}
	}
	return v
}

// adopt adopts orphans that match, and releases machines that do not match any more.
func adopt(w World, selector labels.Selector) (Verdict, bool) {
	matching := slices.DeleteFunc(slices.Clone(w.Orphans), func(m *v1alpha1.Machine) bool {
		return m.DeletionTimestamp != nil || w.Done.Adopted[m.UID] || !selector.Matches(labels.Set(m.Labels))
	})
	if len(matching) > 0 && !w.Done.AdoptionRace.IsLost() {
		return Verdict{Do: Adopt, Machines: matching}, true
	}
	mismatched := slices.DeleteFunc(slices.Clone(w.Owned), func(m *v1alpha1.Machine) bool {
		return m.DeletionTimestamp != nil || w.Done.Adopted[m.UID] || w.Undecodable[m.UID] || selector.Matches(labels.Set(m.Labels))
	})
	if len(mismatched) > 0 {
		return Verdict{Do: Release, Machines: mismatched}, true
	}
	return Verdict{}, false
}

// carryOut returns the action for recorded intents that are not observed yet. Any holder that finds
// an intent completes it. Machines are deleted before others are created: otherwise there would be
// more than desired in between.
func carryOut(w World, in machinefacts.Intents) (Verdict, bool) {
	deletions := slices.DeleteFunc(slices.Clone(w.Owned), func(m *v1alpha1.Machine) bool {
		return m.DeletionTimestamp != nil || w.Done.Deleted[m.UID] || !in.Deletes(m.UID) || isDeletionObsolete(w, in, m)
	})
	if open := untried(w, deletions); len(open) > 0 && w.Done.DeleteError == "" {
		return Verdict{Do: Delete, Machines: open, Reasons: reasons(open, in.Reason)}, true
	}
	if len(deletions) > 0 || w.Done.CreateError != "" || obsoleteDeletions(w, in) > 0 || machinefacts.CreatesNone(w.Set) {
		return Verdict{}, false
	}
	var missing []int64
	for _, ordinal := range awaited(w, in) {
		if !w.Done.Created[ordinal] && !w.Done.Occupied[ordinal] {
			missing = append(missing, ordinal)
		}
	}
	return Verdict{Do: Create, Ordinals: missing}, len(missing) > 0
}

// untried returns the machines without those whose deletion was rejected in this pass because they
// have changed.
func untried(w World, machines []*v1alpha1.Machine) []*v1alpha1.Machine {
	return slices.DeleteFunc(slices.Clone(machines), func(m *v1alpha1.Machine) bool { return w.Done.Refused[m.UID] })
}

// decideDelete deletes all machines, and releases the set when a live list returns none.
func decideDelete(w World) Verdict {
	if !slices.Contains(w.Set.Finalizers, v1alpha1.FinalizerName) {
		return Verdict{Do: Rest}
	}
	if slices.Contains(w.Set.Finalizers, metav1.FinalizerOrphanDependents) {
		// Its machines are orphaned: the garbage collector removes their owner reference before it
		// deletes the set. With our finalizer the set would be there for longer than the garbage
		// collector's, and its MachineDeployment would take it for one that is deleted with its machines,
		// and create others in addition to them.
		return release(w)
	}
	remaining := slices.DeleteFunc(slices.Clone(w.Owned), func(m *v1alpha1.Machine) bool {
		return m.DeletionTimestamp != nil || w.Done.Deleted[m.UID] || holds(w, m)
	})
	open := untried(w, remaining)
	switch {
	case len(open) > 0 && w.Done.DeleteError == "":
		return Verdict{Do: Delete, Machines: open, Reasons: reasons(open, func(types.UID) (is receipt.Reason, known bool) {
			return machinefacts.ParentDeleted(w.Set), true
		})}
	case len(w.Owned) > 0:
		return rest(w)
	case w.Live == nil:
		return Verdict{Do: ListLive}
	case len(w.Live.Owned) > 0:
		return Verdict{Do: Rest} // the event of the cache starts the next pass
	}
	return release(w)
}

// release removes the fleet's finalizer.
func release(w World) Verdict {
	set := w.Set.DeepCopy()
	set.Finalizers = slices.DeleteFunc(set.Finalizers, func(f string) bool { return f == v1alpha1.FinalizerName })
	return Verdict{Do: Rest, Set: set}
}

// invalid records what is wrong with the set, and changes nothing else.
func invalid(w World, reason, problem string) Verdict {
	set := w.Set.DeepCopy()
	set.Status.ObservedGeneration = set.Generation
	machinefacts.SetConditionOfSet(&set.Status, v1alpha1.MachineSetValid,
		machinefacts.False(reason, "The MachineSet is not acted on until it is corrected: "+problem), w.Now)
	return Verdict{Do: Rest, Set: set, Events: statusEvents(w, set.Status)}
}
