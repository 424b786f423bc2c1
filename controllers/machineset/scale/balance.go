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

// burst is the maximum number of recorded creations, and of recorded deletions, that are not observed yet.
const burst = machinefacts.MostIntents

// balance compares the expected number of machines with the desired one, and returns new intents, a correction of machines, or
// the status.
func balance(w World, in machinefacts.Intents) Verdict {
	next := settle(w, in)
	all := standing(w, next)
	changing := autoPreserve(w, all)
	if open := untouched(w, changing); len(open) > 0 {
		return Verdict{Do: Update, Machines: open} // before one of them is replaced
	}
	if w.Live == nil && anyChosen(w, deletable(w, all)) {
		return Verdict{Do: ListLive} // a new holder reads the machines that are named before it deletes one
	}
	all = doom(w, &next, all, changing)
	frozen := machinefacts.MakesNone(w.Set)
	if frozen && w.Live == nil && len(awaited(w, next)) > 0 {
		return Verdict{Do: ListLive}
	}
	withdrawn := 0
	if frozen && sees(w) {
		withdrawn = withdraw(&next, len(next.Create), isUnmade(w))
	}
	desired, coming := int(w.Set.Spec.Replicas), len(awaited(w, next))
	own := slices.DeleteFunc(slices.Clone(all), func(m *v1alpha1.Machine) bool { return isTransferred(w, m) })
	missing, excess := desired-len(all)-coming, len(own)+coming-desired
	switch {
	case missing > 0 && next.Losses.Wait(w.Set.Generation, w.Now) > 0: // see losses.go
	case missing > 0 && !frozen && hasRoomFor(missing, next):
		if w.Live == nil {
			return Verdict{Do: ListLive}
		}
		if sees(w) {
			order(w, &next, min(missing, burst))
		}
	case excess > 0 && len(deletable(w, own))+coming == 0: // all are held, and the API server is not read for nothing
	case excess > 0 && burst-len(next.Delete) >= min(excess, burst/2): // otherwise pending changes are observed first
		switch ranked := rank(w, deletable(w, own)); {
		case w.Fades && coming == 0:
			discard(w, &next, ranked, excess)
		case w.Live == nil:
			return Verdict{Do: ListLive} // the order of deletion may have changed a moment ago
		case sees(w):
			named := min(firstNamed(w, ranked), excess)
			withdrawnNow := withdraw(&next, excess-named, isUnmade(w)) // pending creations are withdrawn before existing machines that are not named are deleted
			withdrawn += withdrawnNow
			discard(w, &next, ranked, excess-withdrawnNow)
		}
	}
	untidy := settled(next) && !settled(in)
	if grew(in, next) || untidy && !w.TidyLater || isStale(w, in) || withdrawn > 0 || spared(w, in) > 0 {
		set := w.Set.DeepCopy()
		next.Write(set)
		return Verdict{Do: Save, Set: set}
	}
	if changed := outOfStep(w, all); len(changed) > 0 {
		return Verdict{Do: Update, Machines: changed}
	}
	v := rest(w)
	v.Untidy = untidy
	return v
}

// rest ends the pass with the status. While expected machines are not in the cache yet, the status would be wrong.
func rest(w World) Verdict {
	if w.Live != nil && !sees(w) {
		return Verdict{Do: Rest, Wake: nextChange(w)}
	}
	set := w.Set.DeepCopy()
	set.Status = status(w)
	return Verdict{Do: Rest, Set: set, Wake: nextChange(w), Events: news(w, set.Status)}
}

// standing returns the machines that are neither being deleted nor recorded for deletion. The answer of the API server has
// precedence over the cache: a machine that it does not return for the set was deleted, or belongs to another set by now.
func standing(w World, in machinefacts.Intents) (all []*v1alpha1.Machine) {
	for _, m := range w.Owned {
		if m.DeletionTimestamp != nil || in.Dooms(m.UID) || w.Done.Deleted[m.UID] {
			continue
		}
		if live, requested := w.live(m); requested && (live == nil || live.DeletionTimestamp != nil) {
			continue
		}
		all = append(all, m)
	}
	return all
}

// doom records for deletion those of the standing machines that are deleted whatever their number: those that have failed and
// must be replaced, and those that the cluster-autoscaler has chosen. It returns the others. A machine that is about to be
// preserved is not deleted; the next pass observes whether it is preserved.
func doom(w World, in *machinefacts.Intents, standing, changing []*v1alpha1.Machine) []*v1alpha1.Machine {
	until := chosenUntil(w.Set)
	return slices.DeleteFunc(standing, func(m *v1alpha1.Machine) bool {
		if holds(w, m) {
			return false
		}
		chosen := isChosen(w.newest(m), until)
		failed := isToBeReplaced(w, m) && !slices.ContainsFunc(changing, func(c *v1alpha1.Machine) bool { return c.UID == m.UID })
		if !chosen && !failed || len(in.Delete) >= burst {
			return false
		}
		why := whyNamed(w, m)
		if !chosen {
			why = whyFailed(w, m)
			lose(w, in, m)
		}
		in.Delete = append(in.Delete, machinefacts.Doomed{Name: m.Name, UID: m.UID, Failed: !chosen, Why: why})
		return true
	})
}

// anyChosen reports whether the cluster-autoscaler has chosen one of the machines.
func anyChosen(w World, machines []*v1alpha1.Machine) bool {
	until := chosenUntil(w.Set)
	return slices.ContainsFunc(machines, func(m *v1alpha1.Machine) bool { return isChosen(&m.ObjectMeta, until) })
}

// firstNamed returns the number of the first machines, in the order of deletion, that the cluster-autoscaler has named: it has
// given them the priority and then lowered the replicas.
func firstNamed(w World, ranked []*v1alpha1.Machine) (n int) {
	for _, m := range ranked {
		if w.newest(m).Annotations[v1alpha1.AnnotationPriority] != v1alpha1.PriorityTriggered {
			break
		}
		n++
	}
	return n
}

// isToBeReplaced reports whether the machine has failed, is not preserved, and has its disruption, or is outdated; and whether it can be
// replaced: a frozen set creates no machines, and would shrink below its replicas.
func isToBeReplaced(w World, m *v1alpha1.Machine) bool {
	hasFailed := machinefacts.HasFailed(m) && !machinefacts.IsKept(m, w.Now) && disruption.Allows(w.Disruptions, m)
	return !machinefacts.IsFrozen(w.Set) && (hasFailed || isOutdated(w, m))
}

// isOutdated reports whether the machine could not be created, and the template names another MachineClass by now. Such a machine may
// never fail, because the machine controller does not know that its replacement would fare better. It needs no disruption: it runs nothing.
func isOutdated(w World, m *v1alpha1.Machine) bool {
	return m.Status.CurrentStatus.Phase == v1alpha1.MachineCrashLoopBackOff && m.Spec.Class.Name != w.Set.Spec.Template.Spec.Class.Name &&
		!machinefacts.IsPreserved(m, w.Now)
}

// isTransferred reports whether the machine was updated in place and was transferred from another set, which is about to lower
// its replicas for it. Until then it is not surplus.
func isTransferred(w World, m *v1alpha1.Machine) bool {
	return w.newest(m).Labels[v1alpha1.LabelUpdateResult] == v1alpha1.UpdateResultSuccessful
}

// hasRoomFor reports whether so many creations may be recorded now. If they do not fit into a batch beside the pending ones,
// all pending ones are observed first: each batch costs a write of the set and a list of the API server.
func hasRoomFor(missing int, in machinefacts.Intents) bool {
	return len(in.Create) == 0 || missing <= burst-len(in.Create)
}

// order records machines for creation. It skips the ordinal of a machine whose name is taken: by a machine that is being
// deleted, or that does not belong to the set.
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

// discard records the first of the machines for deletion: count, or fewer if they do not fit into a batch.
func discard(w World, in *machinefacts.Intents, ranked []*v1alpha1.Machine, count int) {
	var spared *v1alpha1.Machine
	if count < len(ranked) {
		spared = ranked[count]
	}
	exist := int(w.Set.Spec.Replicas) + count
	for _, m := range ranked[:min(count, burst-len(in.Delete), len(ranked))] {
		in.Delete = append(in.Delete, machinefacts.Doomed{Name: m.Name, UID: m.UID, Why: whySurplus(w, m, spared, exist)})
	}
}

// sees reports whether the API server was read, and the cache has all that it returned. Otherwise an event will arrive and start
// the next pass; until then nothing is decided on that list, which may be old by then.
func sees(w World) bool { return w.Live != nil && len(Unseen(w)) == 0 }

// Unseen returns the set's machines that the API server has returned and the cache does not have.
func Unseen(w World) map[types.UID]*metav1.ObjectMeta {
	unseen := maps.Clone(w.Live.Owned)
	for _, m := range w.Owned {
		delete(unseen, m.UID)
	}
	return unseen
}
