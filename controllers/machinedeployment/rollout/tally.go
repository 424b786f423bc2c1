package rollout

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1/validation"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/machinefacts"
)

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
