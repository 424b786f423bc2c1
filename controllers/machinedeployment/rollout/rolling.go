package rollout

import "github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"

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
