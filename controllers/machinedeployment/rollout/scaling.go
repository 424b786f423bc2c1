package rollout

import (
	"cmp"
	"math"
	"slices"
	"strconv"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
)

// isResized reports whether the replicas have changed since the sets got their sizes.
func (s *sets) isResized() bool {
	return slices.ContainsFunc(s.active(), func(t *tally) bool { return desiredOf(t.set) != s.replicas })
}

// isLowered reports whether the replicas are fewer than when the sets got their sizes.
func (s *sets) isLowered() bool {
	return slices.ContainsFunc(s.active(), func(t *tally) bool { return desiredOf(t.set) > s.replicas })
}

// desiredOf reads for how many replicas a set was sized; -1 when it was not recorded.
func desiredOf(set *v1alpha1.MachineSet) int32 { return noted(set, v1alpha1.AnnotationDesiredReplicas) }

func noted(set *v1alpha1.MachineSet, annotation string) int32 {
	n, err := strconv.ParseInt(set.Annotations[annotation], 10, 32)
	if err != nil {
		return -1
	}
	return int32(n)
}

// follow has the sets follow the replicas, without a step of the rollout.
func (s *sizing) follow() {
	active, before := s.active(), map[*tally]int32{}
	for _, t := range s.all() {
		before[t] = t.size
	}
	defer s.deferGrowth(before)
	switch {
	case len(active) <= 1:
		if only := s.main(active); only != nil {
			s.sizeOnly(only)
		}
	case s.isSaturated():
		for _, t := range s.old {
			t.size = 0
		}
	case s.w.Live == nil:
		s.needsLive = true
	case isRolling(s.d):
		spread(s.limits, s.newSet, active, s.d.Status.Replicas)
	}
}

// deferGrowth keeps a set from growing while machines exist that have to be deleted first. It
// continues when they are being deleted.
//
//	replicas 4 → 6, surge 2, old 1 and 3 exist, new 2 → 7: 3 + 7 are 2 more than 8  →  new 5
func (s *sizing) deferGrowth(before map[*tally]int32) {
	beyond := -s.most()
	for _, t := range s.all() {
		beyond += t.stands()
	}
	for _, t := range s.all() {
		if part := min(beyond, t.size-before[t]); part > 0 {
			t.size -= part
			beyond -= part
			s.deferred += part
		}
	}
}

// onlyRule sizes the only set that has machines, if it applies.
type onlyRule struct {
	name string
	size func(*sizing, *tally) (size int32, applies bool)
}

// onlyRules are tried in this order: the first one that applies decides. While a rollout is paused
// the set may have machines beyond the replicas: those stay where the autoscaler has named the
// others, and are deleted when it is resumed, or resized without named machines.
var onlyRules = []onlyRule{
	{"paused beyond the replicas and not resized", func(s *sizing, t *tally) (int32, bool) {
		return min(t.size, s.most()), s.isBeyond(t) && !s.isResized()
	}},
	{"paused beyond the replicas, named machines not read", func(s *sizing, t *tally) (int32, bool) {
		s.needsLive = s.needsLive || s.isBeyond(t) && s.w.Live == nil
		return t.size, s.needsLive
	}},
	{"paused beyond the replicas, some machines named", func(s *sizing, t *tally) (int32, bool) {
		return min(max(t.size-t.named, s.replicas), s.most()), s.isBeyond(t) && (t.named > 0 || s.wasJustAmong(t))
	}},
	{"resized", func(s *sizing, _ *tally) (int32, bool) { return s.replicas, s.isResized() }},
	{"old machines being deleted", func(s *sizing, t *tally) (int32, bool) { return rollUp(s.limits, s.total(), t.size), true }},
}

// sizeOnly sizes the only set that has machines.
func (s *sizing) sizeOnly(only *tally) {
	before := only.size
	for _, rule := range onlyRules {
		if size, applies := rule.size(s, only); applies {
			only.size = size
			break
		}
	}
	if isRecreating(s.d) && only.size > before && !s.isOnly(only) {
		only.size, s.deferred = before, only.size-before
	}
}

// isBeyond reports whether a rollout is paused and has left the set with more machines than the
// replicas.
func (s *sizing) isBeyond(t *tally) bool {
	isRolled := t != s.newSet || s.isUnderWay() || t.size > desiredOf(t.set)
	return s.d.Spec.Paused && isRolling(s.d) && isRolled && s.replicas > 0 && t.size > s.replicas
}

// isOnly reports whether no other set has a machine.
func (s *sizing) isOnly(only *tally) bool {
	if only == s.newSet {
		return s.areOldGone()
	}
	return !slices.ContainsFunc(s.all(), func(t *tally) bool { return t != only && t.exist > 0 })
}

// wasJustAmong reports whether another set has had machines a moment ago: some of them still exist,
// or it got a change of the replicas that this one has not got yet.
func (s *sizing) wasJustAmong(only *tally) bool {
	received, _ := changedByScaler(only.set)
	return slices.ContainsFunc(s.all(), func(t *tally) bool {
		later, _ := changedByScaler(t.set)
		return t != only && (t.exist > 0 || later.After(received))
	})
}

// main is the one set that has machines, or, if none has, the one that should have them: the new
// one, else the youngest.
func (s *sizing) main(active []*tally) *tally {
	switch {
	case len(active) > 0:
		return active[0]
	case s.newSet != nil:
		return s.newSet
	}
	for _, t := range slices.Backward(s.old) {
		if t.set.DeletionTimestamp == nil {
			return t
		}
	}
	return nil
}

// isSaturated reports whether the new set has all of its machines.
func (s *sizing) isSaturated() bool {
	t := s.newSet
	return t != nil && t.size == s.replicas && t.available() == s.replicas && desiredOf(t.set) == s.replicas
}

// spread changes the sizes of several sets to what their deployment may have now. New machines are
// added to the new set alone, or the youngest where there is none. Machines are removed from all in
// proportion to their sizes, each rounded, the largest first; the largest sets take the rest.
// before is how many machines the deployment had, for sets that do not say for how many they were
// sized. Before all that the sets shrink by those of their machines that the autoscaler has named.
//
//	replicas 10 → 5, surge 1, old 8, new 3, sized for 11: allowed 6, so 5 are deleted
//	  old ⌊8 × 6 / 11⌉ − 8 = 4 − 8 = −4, new ⌊3 × 6 / 11⌉ − 3 = 2 − 3 = −1  →  old 4, new 2
//	replicas 10 → 8, surge 1, old 7, new 3 of which 2 are named: 8 are left, and 8 to 9 allowed  →  old 7, new 1
func spread(l limits, newSet *tally, active []*tally, before int32) {
	change := l.most()
	for _, t := range active {
		change -= t.size
	}
	change += dropNamed(active, l.surge-change)
	if newSet == nil {
		newSet = active[len(active)-1]
	}
	switch {
	case change >= 0 && change <= l.surge && desiredOf(newSet.set) > l.replicas:
		return // as many as are wanted: where the replicas fall, none is created
	case change >= 0:
		newSet.size += change
		return
	}
	byAge := slices.Clone(active)
	slices.SortStableFunc(active, func(a, b *tally) int { return cmp.Compare(b.size, a.size) })
	least, sizes := leastAfter(l, active), map[*tally]int32{}
	for _, t := range active {
		sizes[t] = t.size
		part := max(fraction(l, t, before), change, -t.size)
		t.size += part
		change -= part
	}
	for _, t := range active {
		part := max(change, -t.size)
		t.size += part
		change -= part
	}
	restoreAvailable(least, byAge, sizes)
}

// dropNamed shrinks the sets by those of their machines that the autoscaler has named, from the
// oldest set first, and no more than are too many: the rest is replaced in the same set.
func dropNamed(active []*tally, most int32) (named int32) {
	for _, t := range active {
		part := min(t.named, t.size, max(most-named, 0))
		t.size -= part
		named += part
	}
	return named
}

// fraction is by how much a set would shrink in proportion.
func fraction(l limits, t *tally, before int32) int32 {
	if l.replicas == 0 {
		return -t.size
	}
	sizedFor := noted(t.set, v1alpha1.AnnotationMaxReplicas)
	if sizedFor <= 0 {
		sizedFor = before
	}
	if sizedFor <= 0 {
		return 0
	}
	share := math.Round(float64(t.size) * float64(l.most()) / float64(sizedFor))
	return min(int32(share)-t.size, 0)
}

// leastAfter is how many machines have to be available when the sets have shrunk: what the limits
// require, or what is available if that is less.
func leastAfter(l limits, active []*tally) int32 {
	available, preserved := int32(0), int32(0)
	for _, t := range active {
		available += t.available()
		preserved += t.preserved
	}
	return min(available, l.least(preserved))
}

// restoreAvailable moves replicas to sets with available machines from sets with others: rounding
// must not cost an available machine that has to stay. sizes are from before the change.
func restoreAvailable(least int32, active []*tally, sizes map[*tally]int32) {
	for range len(active) * len(active) {
		missing := least
		for _, t := range active {
			missing -= t.available()
		}
		donor, receiver := (*tally)(nil), (*tally)(nil)
		for _, t := range active {
			if donor == nil && t.idle() > 0 {
				donor = t
			}
			if receiver == nil && t.running > t.available() && t.size < sizes[t] {
				receiver = t
			}
		}
		if missing <= 0 || donor == nil || receiver == nil {
			return
		}
		part := min(missing, donor.idle(), sizes[receiver]-receiver.size)
		donor.size -= part
		receiver.size += part
	}
}

// rollUp is the next size of the new set. total is how many machines exist, of all sets; one that
// is being deleted counts until its deletion has ended, so that there are never more VMs than the
// limit.
//
//	replicas 10, surge 1, total 10, size 0  →  0 + min(10+1−10, 10−0) = 1
//	replicas 10, surge 1, total 11, size 1  →  there is no room, 1
func rollUp(l limits, total, size int32) int32 {
	if size > l.replicas {
		return l.replicas
	}
	room := max(l.replicas+l.surge-total, 0)
	return size + min(room, l.replicas-size)
}

// IsReplaced reports whether a rollout which replaces machines shrinks an old set, until it is
// empty. It is false where machines were chosen that are deleted first: the replicas have changed,
// or the cluster-autoscaler has named some.
func IsReplaced(d *v1alpha1.MachineDeployment, before, after *v1alpha1.MachineSet) bool {
	same := func(annotation string) bool { return before.Annotations[annotation] == after.Annotations[annotation] }
	return !d.Spec.Paused && !IsInPlace(d) && !IsNewSet(d, after) && after.Spec.Replicas < before.Spec.Replicas &&
		same(v1alpha1.AnnotationDesiredReplicas) && same(v1alpha1.AnnotationLastReplicaChangeByScaler)
}

// rollDown shrinks the old sets. The sets may shrink by what they have together beyond the least
// that has to be available and beyond the new machines that are not available yet. Machines that
// are not available are deleted first, whichever set they are in, and then available ones while
// there are more than the least, those of the oldest set first.
//
//	least 10; new 1 of which 1 is available; old 10, all available
//	  budget 11 − 10 − (1 − 1) = 1, idle 0, spare 11 − 10 = 1  →  old 9
//	least 8; new 3 of which 0; old 8 of which 6 are available
//	  budget 11 − 8 − (3 − 0) = 0  →  old 8
func rollDown(least int32, newSet *tally, old []*tally) {
	all, available := newSet.size, newSet.available()
	for _, t := range old {
		all += t.size
		available += t.available()
	}
	budget := all - least - (newSet.size - newSet.available())
	if budget <= 0 {
		return
	}
	for _, t := range old {
		cut := min(budget, t.idle())
		t.size -= cut
		budget -= cut
	}
	spare := max(available-least, 0)
	for _, t := range old {
		cut := min(spare, t.size)
		t.size -= cut
		spare -= cut
	}
}
