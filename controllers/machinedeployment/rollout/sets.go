package rollout

import (
	"slices"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/machinefacts"
)

// sets are the sets of a deployment, counted.
type sets struct {
	limits

	w World
	d *v1alpha1.MachineDeployment
	// inPlace reports whether machines are updated in place, and that there are Nodes for it.
	inPlace bool
	// newSet is the new set; nil while there is none.
	newSet *tally
	// old are all others, the oldest first, those included that are being deleted.
	old []*tally
	// namedMachines are the machines that the autoscaler has named.
	namedMachines []namedMachine
}

// countSets counts the sets.
func countSets(w World) *sets {
	s := &sets{
		limits: limitsOf(w.Deployment), w: w, d: w.Deployment, inPlace: IsInPlace(w.Deployment) && !w.NoTarget, namedMachines: namedMachines(w),
	}
	newSet := NewSet(w.Deployment, w.Owned)
	for _, set := range machinefacts.OldestFirst(w.Owned) {
		t := s.count(set)
		t.named = s.countNamed(t)
		if newSet != nil && set.UID == newSet.UID {
			s.newSet = t
		} else {
			s.old = append(s.old, t)
		}
	}
	return s
}

// all returns all sets, the new one first.
func (s *sets) all() []*tally {
	if s.newSet == nil {
		return s.old
	}
	return append([]*tally{s.newSet}, s.old...)
}

// lastNew returns all sets, the new one last.
func (s *sets) lastNew() []*tally {
	if s.newSet == nil {
		return s.old
	}
	return append(slices.Clone(s.old), s.newSet)
}

// wasNew reports whether a set was the new one until the template changed.
func (s *sets) wasNew(t *tally) bool {
	return !slices.ContainsFunc(s.w.Owned, func(other *v1alpha1.MachineSet) bool {
		return machinefacts.Revision(other) > machinefacts.Revision(t.set)
	})
}

// active returns the sets that should have machines, the oldest first.
func (s *sets) active() (active []*tally) {
	for _, t := range s.lastNew() {
		if t.size > 0 {
			active = append(active, t)
		}
	}
	slices.SortStableFunc(active, func(a, b *tally) int { return machinefacts.CompareAge(a.set, b.set) })
	return active
}

// total is how many machines exist.
func (s *sets) total() (n int32) {
	for _, t := range s.all() {
		n += t.exist
	}
	return n
}

// preserved is how many machines have failed and are kept.
func (s *sets) preserved() (n int32) {
	for _, t := range s.all() {
		n += t.preserved
	}
	return n
}

// isUnderWay reports whether machines of an old template are left that have to be replaced.
func (s *sets) isUnderWay() bool {
	return (s.newSet != nil || !s.d.Spec.Paused) && slices.ContainsFunc(s.old, func(t *tally) bool { return !t.isEmpty() })
}

// isComplete reports whether all machines are of the current template, can be used, and are as many
// as are wanted.
func (s *sets) isComplete() bool { return s.isFilled() && s.newSet.exist == s.replicas }

// isFilled reports whether all machines are of the current template, and as many can be used as are
// wanted. Others may exist that are pending deletion.
func (s *sets) isFilled() bool {
	return s.newSet != nil && !s.isUnderWay() && s.newSet.size == s.replicas && s.newSet.available() == s.replicas
}

// areOldGone reports whether no machine is left of the old sets. A cache that shows none proves
// nothing.
func (s *sets) areOldGone() bool {
	return s.seemOldGone() && !s.mustCountOld() && s.uncached() == 0
}

// mustCountOld reports whether the API server has to be read to know whether machines of the old
// sets exist that the cache does not show.
func (s *sets) mustCountOld() bool { return len(s.old) > 0 && (s.w.Live == nil || s.w.Live.OldResized) }

// uncached returns how many machines of the old sets the API server had when none of them was shown
// by the cache and left to be deleted.
func (s *sets) uncached() (n int) {
	if !isRecreating(s.d) || !s.seemOldGone() || s.mustCountOld() {
		return 0
	}
	for _, t := range s.old {
		n += len(s.w.Live.of(t.set))
	}
	return n
}

// seemOldGone reports whether the cache shows no machine of the old sets.
func (s *sets) seemOldGone() bool {
	return !slices.ContainsFunc(s.old, func(t *tally) bool { return t.exist > 0 })
}
