package rollout

import (
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/machinefacts"
)

// createNew creates the new set, after the API server has confirmed that the cache misses none.
// creating is false while the old sets have to be changed first, or when it was tried.
func createNew(s *sets) (v Verdict, creating bool) {
	switch w := s.w; {
	case slices.ContainsFunc(w.Owned, orphansDependents):
		return Verdict{Do: Rest}, true // the next set has to adopt the machines, and not to create others in addition to them
	case w.Done.CreateError != "", isRecreating(s.d) && !s.seemOldGone():
		return Verdict{}, false
	case w.LiveSets == nil:
		return Verdict{Do: ListSets}, true
	case unseen(w.Owned, w.LiveSets):
		return awaitCache(), true
	case isRecreating(s.d) && s.mustCountOld():
		return Verdict{Do: ReadLive}, true
	case isRecreating(s.d) && !s.areOldGone():
		return Verdict{}, false
	}
	s.newSet = s.count(newMachineSet(s.d))
	sizes := &sizing{sets: s}
	if v := (setChanges{sizes}).changes(); len(v.Sets) > 0 {
		return v, true // the Nodes of the old machines are marked before the first new one is created
	}
	if len(s.old) == 0 { // else it grows in a separate write: a create that takes effect late must not create machines
		sizes.step()
	}
	set := s.newSet.set
	set.Spec.Replicas = s.newSet.size
	setChanges{sizes}.complement(s.newSet, set)
	v = Verdict{Do: Create, Sets: []*v1alpha1.MachineSet{set}}
	if beginsWithSet(s.d, s.w.Owned) {
		v.Events = append(v.Events, started(set.Annotations[v1alpha1.AnnotationRevision], set))
	}
	if set.Spec.Replicas > 0 {
		v.Events = append(v.Events, scaled(set, 0))
	}
	return v, true
}

// unseen reports whether the API server has a set of the deployment that the cache does not show.
func unseen(shown []*v1alpha1.MachineSet, live map[types.UID]bool) bool {
	for uid := range live {
		if !slices.ContainsFunc(shown, func(s *v1alpha1.MachineSet) bool { return s.UID == uid }) {
			return true
		}
	}
	return false
}

// awaitCache rests until the cache shows a set that the API server has, which starts a pass, or
// until the API server is read again: a set that is deleted in another slot, where its label was
// edited, is never shown.
func awaitCache() Verdict { return Verdict{Do: Rest, Wake: machinefacts.LateCache} }

// adjust brings all sets to their next sizes and keeps them in step with the deployment; when there
// is nothing to change it deletes sets that are beyond the revision history limit, and ends the
// pass.
func adjust(s *sets) Verdict {
	if v, decided := (inPlaceUpdates{s}).update(); decided {
		return v
	}
	sizes := &sizing{sets: s}
	sizes.step()
	grows := slices.ContainsFunc(s.all(), func(t *tally) bool { return t.size > t.set.Spec.Replicas })
	switch { // a set that the cache does not show has machines that count
	case sizes.needsLive:
		return Verdict{Do: ReadLive}
	case grows && !s.w.Confirmed && s.w.LiveSets == nil:
		return Verdict{Do: ListSets}
	case s.w.LiveSets != nil && grows && unseen(s.w.Owned, s.w.LiveSets):
		return awaitCache()
	case isRecreating(s.d) && s.newSet != nil && s.newSet.size < s.replicas && s.seemOldGone() && s.mustCountOld():
		return Verdict{Do: ReadLive}
	}
	if v := (setChanges{sizes}).changes(); len(v.Sets) > 0 {
		return v
	}
	if v, decided := (inPlaceUpdates{s}).next(); decided {
		return v
	}
	if outdated := s.outdated(); len(outdated) > 0 {
		return Verdict{Do: Delete, Sets: outdated}
	}
	return finish(s)
}
