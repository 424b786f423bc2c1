package scale

import (
	"maps"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/disruption"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/machinefacts"
)

// burst is the maximum number of recorded creations, and of recorded deletions, that are not
// observed yet.
const burst = machinefacts.MostIntents

// balancing is a decision about the number of machines in progress.
type balancing struct {
	w World
	// recorded are the intents that are recorded on the set, and next those that will be.
	recorded, next machinefacts.Intents
	// counted are the machines that are neither being deleted nor recorded for deletion.
	counted []*v1alpha1.Machine
	// preserving are those of counted whose automatic preservation changes.
	preserving []*v1alpha1.Machine
	// withdrawn is how many recorded creations are withdrawn.
	withdrawn int
}

// balanceRule is a step of the decision. apply changes the intents, or returns the action to take;
// decided is false while the next rule applies.
type balanceRule struct {
	name  string
	apply func(*balancing) (v Verdict, decided bool)
}

// balanceRules are applied in this order, until one has decided. The intents of all are recorded in
// one write.
var balanceRules = []balanceRule{
	{"preserve failed machines before one of them is replaced", (*balancing).preserve},
	{"read the API server before named machines are deleted", (*balancing).readNamed},
	{"delete named, failed and outdated machines", (*balancing).deleteAlways},
	{"withdraw the creations of a frozen set", (*balancing).withdrawFrozen},
	{"create missing machines", (*balancing).createMissing},
	{"delete surplus machines", (*balancing).deleteSurplus},
	{"record intents before their effects begin", (*balancing).record},
	{"update machines whose template has changed", (*balancing).updateMachines},
}

// balance compares the expected number of machines with the desired one, and returns new intents, a
// correction of machines, or the status.
func balance(w World, in machinefacts.Intents) Verdict {
	b := &balancing{w: w, recorded: in, next: withoutObserved(w, in)}
	b.counted = counted(w, b.next)
	b.preserving = autoPreserve(w, b.counted)
	for _, rule := range balanceRules {
		if v, decided := rule.apply(b); decided {
			return v
		}
	}
	v := rest(w)
	v.AllObserved = b.allObserved()
	return v
}

func (b *balancing) preserve() (v Verdict, decided bool) {
	open := untouched(b.w, b.preserving)
	return Verdict{Do: Update, Machines: open}, len(open) > 0
}

// readNamed has a new holder read the machines that are named before it deletes one.
func (b *balancing) readNamed() (v Verdict, decided bool) {
	return Verdict{Do: ListLive}, b.w.Live == nil && anyChosen(b.w, deletable(b.w, b.counted))
}

func (b *balancing) withdrawFrozen() (v Verdict, decided bool) {
	if !machinefacts.CreatesNone(b.w.Set) {
		return Verdict{}, false
	}
	if sees(b.w) {
		b.withdrawn = withdraw(&b.next, len(b.next.Create), isNotCreated(b.w))
	}
	return Verdict{Do: ListLive}, b.w.Live == nil && b.coming() > 0
}

// coming returns how many machines count although the cache does not show them.
func (b *balancing) coming() int { return len(awaited(b.w, b.next)) }

func (b *balancing) createMissing() (v Verdict, decided bool) {
	missing := int(b.w.Set.Spec.Replicas) - len(b.counted) - b.coming()
	isDelayed := b.next.Losses.Wait(b.w.Set.Generation, b.w.Now) > 0 // see losses.go
	if missing <= 0 || isDelayed || machinefacts.CreatesNone(b.w.Set) || !hasRoomFor(missing, b.next) {
		return Verdict{}, false
	}
	if sees(b.w) {
		order(b.w, &b.next, min(missing, burst))
	}
	return Verdict{Do: ListLive}, b.w.Live == nil
}

func (b *balancing) deleteSurplus() (v Verdict, decided bool) {
	w, coming := b.w, b.coming()
	own := slices.DeleteFunc(slices.Clone(b.counted), func(m *v1alpha1.Machine) bool { return isTransferred(w, m) })
	excess := len(own) + coming - int(w.Set.Spec.Replicas)
	if excess <= 0 || burst-len(b.next.Delete) < min(excess, burst/2) { // pending changes are observed first
		return Verdict{}, false
	}
	ranked := rank(w, deletable(w, own))
	switch {
	case len(ranked)+coming == 0: // all are held, and the API server is not read for nothing
	case w.IsReplaced && coming == 0:
		discard(w, &b.next, ranked, excess)
	case w.Live == nil:
		return Verdict{Do: ListLive}, true // the order of deletion may have changed a moment ago
	case sees(w):
		named := min(firstNamed(w, ranked), excess)
		withdrawn := withdraw(&b.next, excess-named, isNotCreated(w)) // before existing machines that are not named are deleted
		b.withdrawn += withdrawn
		discard(w, &b.next, ranked, excess-withdrawn)
	}
	return Verdict{}, false
}

func (b *balancing) record() (v Verdict, decided bool) {
	removesObserved := b.allObserved() && !b.w.KeepObserved
	if !grew(b.recorded, b.next) && !removesObserved && !isStale(b.w, b.recorded) && b.withdrawn == 0 &&
		obsoleteDeletions(b.w, b.recorded) == 0 {
		return Verdict{}, false
	}
	set := b.w.Set.DeepCopy()
	b.next.Write(set)
	return Verdict{Do: Save, Set: set}, true
}

// allObserved reports whether all recorded intents are observed.
func (b *balancing) allObserved() bool { return settled(b.next) && !settled(b.recorded) }

func (b *balancing) updateMachines() (v Verdict, decided bool) {
	changed := outOfStep(b.w, b.counted)
	return Verdict{Do: Update, Machines: changed}, len(changed) > 0
}

// rest ends the pass with the status. While expected machines are not in the cache yet, the status
// would be wrong.
func rest(w World) Verdict {
	if w.Live != nil && !sees(w) {
		return Verdict{Do: Rest, Wake: nextChange(w)}
	}
	set := *w.Set
	set.Status = status(w)
	return Verdict{Do: Rest, Set: &set, Wake: nextChange(w), Events: statusEvents(w, set.Status)}
}

// counted returns the machines that are neither being deleted nor recorded for deletion. The answer
// of the API server has precedence over the cache: a machine that it does not return for the set
// was deleted, or belongs to another set by now.
func counted(w World, in machinefacts.Intents) (all []*v1alpha1.Machine) {
	for _, m := range w.Owned {
		if m.DeletionTimestamp != nil || in.Deletes(m.UID) || w.Done.Deleted[m.UID] {
			continue
		}
		if live, requested := w.live(m); requested && (live == nil || live.DeletionTimestamp != nil) {
			continue
		}
		all = append(all, m)
	}
	return all
}

// deleteAlways records for deletion the machines that are deleted for any number of machines: those
// that have failed and must be replaced, and those that the cluster-autoscaler has chosen. A
// machine that is about to be preserved is not deleted; the next pass observes whether it is
// preserved.
func (b *balancing) deleteAlways() (v Verdict, decided bool) {
	w, until := b.w, chosenUntil(b.w.Set)
	b.counted = slices.DeleteFunc(b.counted, func(m *v1alpha1.Machine) bool {
		if holds(w, m) {
			return false
		}
		chosen := isChosen(w.newest(m), until)
		failed := isToBeReplaced(w, m) && !slices.ContainsFunc(b.preserving, func(c *v1alpha1.Machine) bool { return c.UID == m.UID })
		if !chosen && !failed || len(b.next.Delete) >= burst {
			return false
		}
		why := whyNamed(w, m)
		if !chosen {
			why = whyFailed(w, m)
			recordLoss(w, &b.next, m)
		}
		b.next.Delete = append(b.next.Delete, machinefacts.Deletion{Name: m.Name, UID: m.UID, Failed: !chosen, Why: why})
		return true
	})
	return Verdict{}, false
}

// anyChosen reports whether the cluster-autoscaler has chosen one of the machines.
func anyChosen(w World, machines []*v1alpha1.Machine) bool {
	until := chosenUntil(w.Set)
	return slices.ContainsFunc(machines, func(m *v1alpha1.Machine) bool { return isChosen(&m.ObjectMeta, until) })
}

// firstNamed returns the number of the first machines, in the order of deletion, that the
// cluster-autoscaler has named: it has given them the priority and then lowered the replicas.
func firstNamed(w World, ranked []*v1alpha1.Machine) (n int) {
	for _, m := range ranked {
		if w.newest(m).Annotations[v1alpha1.AnnotationPriority] != v1alpha1.PriorityTriggered {
			break
		}
		n++
	}
	return n
}

// isToBeReplaced reports whether the machine has failed, is not preserved, and has its disruption,
// or is outdated; and whether it can be replaced: a frozen set creates no machines, and would
// shrink below its replicas.
func isToBeReplaced(w World, m *v1alpha1.Machine) bool {
	hasFailed := machinefacts.HasFailed(m) && !machinefacts.IsKept(m, w.Now) && disruption.Allows(w.Disruptions, m)
	return !machinefacts.IsFrozen(w.Set) && (hasFailed || isOutdated(w, m))
}

// isOutdated reports whether the machine could not be created, and the template names another
// MachineClass by now. Such a machine may never fail, because the machine controller does not know
// that its replacement would fare better. It needs no disruption: it runs nothing.
func isOutdated(w World, m *v1alpha1.Machine) bool {
	return m.Status.CurrentStatus.Phase == v1alpha1.MachineCrashLoopBackOff && m.Spec.Class.Name != w.Set.Spec.Template.Spec.Class.Name &&
		!machinefacts.IsPreserved(m, w.Now)
}

// isTransferred reports whether the machine was updated in place and was transferred from another
// set, which is about to lower its replicas for it. Until then it is not surplus.
func isTransferred(w World, m *v1alpha1.Machine) bool {
	return w.newest(m).Labels[v1alpha1.LabelUpdateResult] == v1alpha1.UpdateResultSuccessful
}

// hasRoomFor reports whether so many creations may be recorded now. If they do not fit into a batch
// next to the pending ones, all pending ones are observed first: each batch costs a write of the
// set and a list of the API server.
func hasRoomFor(missing int, in machinefacts.Intents) bool {
	return len(in.Create) == 0 || missing <= burst-len(in.Create)
}

// order records machines for creation. It skips the ordinal of a machine whose name is taken: by a
// machine that is being deleted, or that does not belong to the set.
func order(w World, in *machinefacts.Intents, count int) {
	in.Next = nextOrdinal(w, *in)
	for range count {
		for w.Live.Names[machinefacts.Name(w.Set.Name, w.Set.UID, in.Next)] {
			in.Next++
		}
		in.Create = append(in.Create, in.Next)
		in.Next++
	}
}

// discard records the first of the machines for deletion: count, or fewer if they do not fit into a
// batch.
func discard(w World, in *machinefacts.Intents, ranked []*v1alpha1.Machine, count int) {
	var kept *v1alpha1.Machine
	if count < len(ranked) {
		kept = ranked[count]
	}
	exist := int(w.Set.Spec.Replicas) + count
	for _, m := range ranked[:min(count, burst-len(in.Delete), len(ranked))] {
		in.Delete = append(in.Delete, machinefacts.Deletion{Name: m.Name, UID: m.UID, Why: whySurplus(w, m, kept, exist)})
	}
}

// sees reports whether the API server was read, and the cache has all that it returned. Otherwise
// an event will arrive and start the next pass; until then nothing is decided on that list, which
// may be old by then.
func sees(w World) bool { return w.Live != nil && len(Unseen(w)) == 0 }

// Unseen returns the set's machines that the API server has returned and the cache does not have.
func Unseen(w World) map[types.UID]*metav1.ObjectMeta {
	unseen := maps.Clone(w.Live.Owned)
	for _, m := range w.Owned {
		delete(unseen, m.UID)
	}
	return unseen
}
