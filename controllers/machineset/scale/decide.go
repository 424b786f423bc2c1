package scale

import (
	"fmt"
	"maps"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1/validation"
)

// burst is how many machines one batch makes or deletes at the most.
const burst = 100

// Decide says what to do next. It is total: every world has a verdict.
func Decide(w World) Verdict {
	if w.Set.Labels[v1alpha1.LabelSlot] == "" {
		return Verdict{Do: Rest} // in no slot, and so nobody's: its machines would be nobody's either
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
	in, err := ReadIntents(w.Set)
	if err != nil {
		return invalid(w, v1alpha1.ReasonInvalidSpec, err.Error())
	}
	if !slices.Contains(w.Set.Finalizers, v1alpha1.FinalizerName) {
		set := w.Set.DeepCopy()
		set.Finalizers = append(set.Finalizers, v1alpha1.FinalizerName)
		return Verdict{Do: Save, Set: set}
	}
	if w.MustLook {
		return Verdict{Do: ListLive}
	}
	if v, moved := claim(w, selector); moved {
		return v
	}
	if v, more := carryOut(w, in); more {
		return v
	}
	return decideScale(w, in)
}

// claim adopts orphans that match, and releases machines that do not match any more.
func claim(w World, selector labels.Selector) (Verdict, bool) {
	matching := slices.DeleteFunc(slices.Clone(w.Orphans), func(m *v1alpha1.Machine) bool {
		return m.DeletionTimestamp != nil || w.Done.Adopted[m.UID] || !selector.Matches(labels.Set(m.Labels))
	})
	if len(matching) > 0 {
		return Verdict{Do: Adopt, Machines: matching}, true
	}
	strangers := slices.DeleteFunc(slices.Clone(w.Owned), func(m *v1alpha1.Machine) bool {
		return m.DeletionTimestamp != nil || w.Done.Adopted[m.UID] || selector.Matches(labels.Set(m.Labels))
	})
	if len(strangers) > 0 {
		return Verdict{Do: Release, Machines: strangers}, true
	}
	return Verdict{}, false
}

// carryOut does what was decided and is not seen done. Whoever finds an intent completes it. What is to go goes before
// what is to come: until then the two together would be more than wanted.
func carryOut(w World, in Intents) (Verdict, bool) {
	doomed := slices.DeleteFunc(slices.Clone(w.Owned), func(m *v1alpha1.Machine) bool {
		return m.DeletionTimestamp != nil || w.Done.Deleted[m.UID] || !in.dooms(m.UID) || in.spares(m)
	})
	if open := untried(w, doomed); len(open) > 0 && w.Done.DeleteError == "" {
		return Verdict{Do: Delete, Machines: open}, true
	}
	if len(doomed) > 0 || w.Done.CreateError != "" || spared(w, in) > 0 {
		return Verdict{}, false
	}
	var missing []int64
	seen := seenOrdinals(w.Owned)
	for _, ordinal := range in.Create {
		if !seen[ordinal] && !w.Done.Created[ordinal] && !w.Done.Taken[ordinal] {
			missing = append(missing, ordinal)
		}
	}
	return Verdict{Do: Create, Ordinals: missing}, len(missing) > 0
}

// untried leaves out the machines whose deletion was refused in this pass because they have changed.
func untried(w World, machines []*v1alpha1.Machine) []*v1alpha1.Machine {
	return slices.DeleteFunc(slices.Clone(machines), func(m *v1alpha1.Machine) bool { return w.Done.Refused[m.UID] })
}

// decideScale compares what there will be with what is wanted, and writes new intents or the status.
func decideScale(w World, in Intents) Verdict {
	next := settle(w, in)
	var standing []*v1alpha1.Machine // neither ending nor doomed
	for _, m := range w.Owned {
		if m.DeletionTimestamp == nil && !next.dooms(m.UID) && !w.Done.Deleted[m.UID] {
			standing = append(standing, m)
		}
	}
	changing := autoPreserve(w, standing)
	if open := untouched(w, changing); len(open) > 0 {
		return Verdict{Do: Update, Machines: open} // before one of them is replaced
	}
	expected := awaited(w, next)
	standing = doom(w, &next, standing, isToGo(changing))
	diff := int(w.Set.Spec.Replicas) - len(standing) - len(expected)
	withdrawn := 0
	switch {
	case diff > 0 && isFrozen(w.Set):
	case diff > 0 && w.Live == nil:
		return Verdict{Do: ListLive}
	case diff > 0 && len(Unseen(w)) > 0:
		// The API server knows machines of the set that the cache does not show yet. They will come, and wake us; until
		// then we know that we do not know how many there are.
		return Verdict{Do: Rest}
	case diff > 0:
		next.Next = max(next.Next, highestOrdinal(w.Owned)+1)
		for range min(diff, burst) {
			for w.Live.Names[Name(w.Set.Name, w.Set.UID, next.Next)] {
				next.Next++ // taken by a machine that is not the set's, or that is ending
			}
			next.Create = append(next.Create, next.Next)
			next.Next++
		}
	case diff < 0:
		withdrawn = withdraw(w, &next, min(-diff, revocable(w, in)))
		diff += withdrawn
		victims := rank(standing, w.Now)
		for _, m := range victims[:min(-diff, burst, len(victims))] {
			next.Delete = append(next.Delete, Doomed{Name: m.Name, UID: m.UID})
		}
	}
	set := w.Set.DeepCopy()
	if grew(in, next) || settled(next) && !settled(in) || isStale(w, in) || withdrawn > 0 || spared(w, in) > 0 {
		next.write(set)
		return Verdict{Do: Save, Set: set}
	}
	if changed := outOfStep(w, standing); len(changed) > 0 {
		return Verdict{Do: Update, Machines: changed}
	}
	set.Status = status(w)
	return Verdict{Do: Rest, Set: set}
}

// revocable is how many creates may be taken back: all that the API server refuses, and those in the place of machines that
// were to go and have recovered.
func revocable(w World, in Intents) (n int) {
	if w.Done.CreateError != "" {
		return len(in.Create)
	}
	return spared(w, in)
}

// spared counts the machines that were to go because they had failed, and have recovered.
func spared(w World, in Intents) (n int) {
	for _, m := range w.Owned {
		if in.spares(m) {
			n++
		}
	}
	return n
}

// withdraw takes back up to most creates, the last first, and returns how many. Their ordinals are not used again, so that one
// which takes effect late is a machine too many, and goes.
func withdraw(w World, in *Intents, most int) (withdrawn int) {
	for i := len(in.Create) - 1; i >= 0 && withdrawn < most; i-- {
		if !w.Done.Created[in.Create[i]] {
			in.Create = slices.Delete(in.Create, i, i+1)
			withdrawn++
		}
	}
	return withdrawn
}

// settle strikes off what is seen done: machines that the cache shows, and machines that are ending or gone; and machines
// that were to go because they had failed, and have recovered.
func settle(w World, in Intents) Intents {
	out := in.clone()
	seen := seenOrdinals(w.Owned)
	out.Create = slices.DeleteFunc(out.Create, func(o int64) bool { return seen[o] || w.Done.Taken[o] })
	out.Delete = slices.DeleteFunc(out.Delete, func(d Doomed) bool {
		return !slices.ContainsFunc(w.Owned, func(m *v1alpha1.Machine) bool {
			return m.UID == d.UID && m.DeletionTimestamp == nil && !d.spares(m)
		})
	})
	return out
}

// awaited are the ordinals that count although the cache does not show their machines.
func awaited(w World, in Intents) []int64 {
	seen := seenOrdinals(w.Owned)
	return slices.DeleteFunc(slices.Clone(in.Create), func(o int64) bool { return seen[o] })
}

// doom marks those of the standing machines for deletion that the condition holds for, and returns the others.
func doom(w World, in *Intents, standing []*v1alpha1.Machine, condition func(World, *v1alpha1.Machine) bool) []*v1alpha1.Machine {
	return slices.DeleteFunc(standing, func(m *v1alpha1.Machine) bool {
		if len(in.Delete) >= burst || !condition(w, m) {
			return false
		}
		in.Delete = append(in.Delete, Doomed{Name: m.Name, UID: m.UID, Failed: true})
		return true
	})
}

// isFrozen says that the set must not make machines.
func isFrozen(set *v1alpha1.MachineSet) bool {
	_, disabled := set.Labels[v1alpha1.LabelScaleUpDisabled]
	return disabled || set.Labels[v1alpha1.LabelFreeze] == "True"
}

// Unseen are the set's machines that the API server knows and the cache does not show.
func Unseen(w World) map[types.UID]bool {
	unseen := maps.Clone(w.Live.Owned)
	for _, m := range w.Owned {
		delete(unseen, m.UID)
	}
	return unseen
}

// grew says that something new was decided.
func grew(before, after Intents) bool {
	return after.Next != before.Next ||
		slices.ContainsFunc(after.Delete, func(d Doomed) bool { return !before.dooms(d.UID) })
}

// isStale says that an intent's machine is ending already: struck off late, its ordinal would be used again. Otherwise
// what is done is struck off when all of it is, or along with something new, so that a batch costs two writes.
func isStale(w World, in Intents) bool {
	return slices.ContainsFunc(w.Owned, func(m *v1alpha1.Machine) bool {
		o, ok := Ordinal(m)
		return ok && m.DeletionTimestamp != nil && slices.Contains(in.Create, o)
	})
}

// settled says that nothing is left to be seen done.
func settled(in Intents) bool { return len(in.Create) == 0 && len(in.Delete) == 0 }

func seenOrdinals(machines []*v1alpha1.Machine) map[int64]bool {
	seen := make(map[int64]bool, len(machines))
	for _, m := range machines {
		if o, ok := Ordinal(m); ok {
			seen[o] = true
		}
	}
	return seen
}

func highestOrdinal(machines []*v1alpha1.Machine) int64 {
	highest := int64(-1)
	for _, m := range machines {
		if o, ok := Ordinal(m); ok {
			highest = max(highest, o)
		}
	}
	return highest
}

// Ordinal returns the ordinal that the machine's name was derived from; ok is false for a machine that no set of ours
// has made.
func Ordinal(m *v1alpha1.Machine) (ordinal int64, ok bool) {
	o, err := strconv.ParseInt(m.Annotations[v1alpha1.AnnotationOrdinal], 10, 64)
	return o, err == nil && o >= 0
}

// decideDelete deletes all machines, and lets the set go when a live list shows none.
func decideDelete(w World) Verdict {
	if !slices.Contains(w.Set.Finalizers, v1alpha1.FinalizerName) {
		return Verdict{Do: Rest}
	}
	if slices.Contains(w.Set.Finalizers, metav1.FinalizerOrphanDependents) {
		return letGo(w) // its machines are to stay: the garbage collector takes them from it before it goes
	}
	left := slices.DeleteFunc(slices.Clone(w.Owned), func(m *v1alpha1.Machine) bool {
		return m.DeletionTimestamp != nil || w.Done.Deleted[m.UID]
	})
	switch {
	case len(untried(w, left)) > 0 && w.Done.DeleteError == "":
		return Verdict{Do: Delete, Machines: untried(w, left)}
	case len(w.Owned) > 0:
		set := w.Set.DeepCopy()
		set.Status = status(w)
		return Verdict{Do: Rest, Set: set}
	case w.Live == nil:
		return Verdict{Do: ListLive}
	case len(w.Live.Owned) > 0:
		return Verdict{Do: Rest} // the cache will show them, and wake us
	}
	return letGo(w)
}

// letGo takes our finalizer off.
func letGo(w World) Verdict {
	set := w.Set.DeepCopy()
	set.Finalizers = slices.DeleteFunc(set.Finalizers, func(f string) bool { return f == v1alpha1.FinalizerName })
	return Verdict{Do: Rest, Set: set}
}

// invalid says what is wrong with the set, and touches nothing else.
func invalid(w World, reason, problem string) Verdict {
	set := w.Set.DeepCopy()
	set.Status.ObservedGeneration = set.Generation
	setCondition(w, &set.Status, v1alpha1.MachineSetCondition{
		Type: v1alpha1.MachineSetValid, Status: corev1.ConditionFalse, Reason: reason,
		Message: fmt.Sprintf("The MachineSet is not acted on until it is corrected: %s", problem),
	})
	return Verdict{Do: Rest, Set: set}
}
