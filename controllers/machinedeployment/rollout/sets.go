package rollout

import (
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1/validation"
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

// tally is a set in numbers, from its machines as the cache shows them. Where that may be late,
// exist errs upwards and available downwards.
type tally struct {
	set *v1alpha1.MachineSet
	// intents of the set. Those of a set that is being deleted may be none because they cannot be
	// read: it carries none out.
	intents machinefacts.Intents
	// size is how many machines the set should have. Decisions change it, in memory.
	size int32
	// exist is how many machines it has, those that are being deleted and those that it is about to
	// create included: also such as it has decided to create when it was larger.
	exist int32
	// running are the machines that can be used, whether or not the set has to shrink. Those are not
	// among them that it has decided to delete, nor those whose turn it is to be updated in place.
	running int32
	// preserved are those that have failed and are kept. A set that shrinks deletes them last.
	preserved int32
	// neverRan are the machines whose VM could not be created, or that never joined. Whether they will
	// is unknown: for many causes they do not fail, because a machine of the same template would not
	// fare better. Those are not among them that the set has decided to delete, nor preserved ones.
	neverRan int32
	// named are machines that the autoscaler has named, and that the size does not account for yet.
	// They are counted when the API server was read.
	named int32
	// updating are the machines whose turn it is to be updated in place, whether or not they seem
	// usable.
	updating int32
	// leaving are the machines that are being deleted, and standing all others, those that it has
	// decided to create included. Of those, deleting are the ones that it has decided to delete.
	leaving, standing, deleting int32
	// seen has the counts of the cache, for people.
	seen seen
}

// seen are machines that the cache shows.
type seen struct{ all, ready, available, preserved int32 }

// count returns the tally of a set.
func (s *sets) count(set *v1alpha1.MachineSet) *tally {
	t, w := &tally{set: set}, s.w
	t.intents, _ = machinefacts.ReadIntents(set) // Decide has refused those that cannot be read
	for _, m := range w.Machines[set.UID] {
		t.seen.all++
		if m.DeletionTimestamp != nil {
			t.leaving++
			continue
		}
		if machinefacts.IsReady(m) {
			t.seen.ready++
		}
		available, _ := s.availableIn(set, m)
		if available {
			t.seen.available++
		}
		if t.intents.Deletes(m.UID) {
			t.deleting++
		}
		updates := isUpdating(s.d, w.Nodes, m)
		switch {
		case updates:
			t.updating++
		case available && !t.intents.Deletes(m.UID):
			t.running++
		}
		if machinefacts.IsPreservedFailed(m, w.Now) {
			t.seen.preserved++
		}
		if neverRan(m, w.Now) && !t.intents.Deletes(m.UID) && !updates {
			t.neverRan++
		}
	}
	t.exist = t.seen.all
	if set.DeletionTimestamp != nil { // all of its machines are about to be deleted, and it is not scaled
		t.running = 0
		return t
	}
	t.size, t.preserved = min(max(set.Spec.Replicas, 0), validation.MaxReplicas), t.seen.preserved // what a set may have
	t.standing = t.seen.all - t.leaving + awaited(t, w.Machines[set.UID])
	t.recount()
	return t
}

// neverRan reports whether a machine has failed to become a Node, at least for now, and is not kept
// for inspection. One without a phase does not count: it was not tried yet, or cannot be decoded.
func neverRan(m *v1alpha1.Machine, now time.Time) bool {
	kept := machinefacts.IsPreserved(m, now) || machinefacts.HasFailed(m) && machinefacts.IsKept(m, now)
	return m.Status.CurrentStatus.Phase != "" && machinefacts.NeverRan(m) && !kept
}

// recount recalculates how many machines exist after the set got another size.
func (t *tally) recount() { t.exist = t.leaving + t.stands() }

// stands returns how many machines are not being deleted when the set has reached its size. What it
// has decided to delete exists until then, and does not count for the size.
func (t *tally) stands() int32 { return max(t.standing, t.size+t.deleting) }

// awaited returns how many machines a set has decided to create that are not among those that are
// seen.
func awaited[T metav1.Object](t *tally, seen []T) int32 {
	return int32(len(machinefacts.Awaited(t.intents, t.set, seen)))
}

// available are the machines that can be used and that the set does not delete to reach its size.
// The set has no record of which Nodes are drained for an update in place, so it may keep those and
// delete others.
func (t *tally) available() int32 { return min(t.running, max(t.size-t.preserved-t.updating, 0)) }

// idle returns how many machines the set should have that are not available.
func (t *tally) idle() int32 { return max(t.size-t.available()-t.preserved-t.updating, 0) }

// isEmpty reports whether the set neither has machines nor should have any.
func (t *tally) isEmpty() bool { return t.size == 0 && t.exist == 0 }

// availableIn reports whether a machine is available; and if nothing but time is missing, how much
// of it.
func (s *sets) availableIn(set *v1alpha1.MachineSet, m *v1alpha1.Machine) (available bool, in time.Duration) {
	return machinefacts.Available(m, machinefacts.MinReady(set, s.w.CountMinReady), s.w.Now)
}

// nextChange returns when, from now, time alone changes the counts: another machine is available,
// or the preservation of a failed one ends; 0 when neither is about to happen.
func (s *sets) nextChange() (next time.Duration) {
	for _, t := range s.all() {
		machines := s.w.Machines[t.set.UID]
		for _, m := range machines {
			if _, in := s.availableIn(t.set, m); in > 0 {
				next = machinefacts.Sooner(next, in)
			}
		}
		next = machinefacts.Sooner(next, machinefacts.PreservationEnds(machines, s.w.Now))
	}
	return next
}

// sizing decides the next sizes of sets, in memory.
type sizing struct {
	*sets

	// needsLive reports whether several sets have to be resized, and that it is not known which of
	// their machines the autoscaler has named.
	needsLive bool
	// deferred is how many machines are due and have to wait, because others still exist that have to
	// be deleted. The sets are sized for as many fewer meanwhile.
	deferred int32
	// replaces reports whether the old sets shrink in this step because their machines are replaced,
	// and not because the replicas were lowered.
	replaces bool
}

// step sets the next sizes of the sets.
func (s *sizing) step() {
	s.replaces = true
	switch matches := s.d.Spec.Paused || !isRolling(s.d) && !isRecreating(s.d); {
	case s.inPlace && s.newSet != nil:
		s.replaces = !s.isLowered()
		s.stepInPlace()
	case s.newSet != nil && s.isResized(), matches && (s.isResized() || len(s.active()) <= 1):
		s.replaces = len(s.active()) > 1 && s.isSaturated()
		s.follow()
	case matches:
	case isRecreating(s.d):
		s.recreate()
	case isRolling(s.d) && s.newSet != nil: // else the old ones stay as they are until it is created
		s.newSet.size = rollUp(s.limits, s.total(), s.newSet.size)
		rollDown(s.least(s.preserved()), s.newSet, s.old)
	}
}

// recreate scales the old sets to 0, and the new one to the replicas when no machine of the old
// ones is left.
func (s *sizing) recreate() {
	for _, t := range s.old {
		t.size = 0
	}
	if s.newSet != nil && (s.newSet.size > s.replicas || s.areOldGone()) {
		s.newSet.size = rollUp(s.limits, s.total(), s.newSet.size) // its own machines may be being deleted, from when it was an old set
	}
}
