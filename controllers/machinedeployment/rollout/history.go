package rollout

import "github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"

// outdated returns the old sets that are more than are kept for a rollback, when no rollout is in
// progress.
func (s *sets) outdated() []*v1alpha1.MachineSet {
	if s.d.Spec.RevisionHistoryLimit == nil || !s.isComplete() && (!s.d.Spec.Paused || s.d.Spec.RollbackTo != nil) {
		return nil
	}
	var standing []*tally
	for _, t := range s.old {
		if t.set.DeletionTimestamp == nil && !s.w.Done.Deleted[t.set.UID] {
			standing = append(standing, t)
		}
	}
	return beyond(*s.d.Spec.RevisionHistoryLimit, standing)
}

// beyond returns those of the old sets, the oldest first, that are beyond the limit and have no
// machines. A set that still has some counts, and stays until it has none.
//
//	limit 2, old a b c d, of which b has a machine  →  4 − 2 = 2 are beyond, a and b; a is deleted
func beyond(limit int32, old []*tally) (outdated []*v1alpha1.MachineSet) {
	for i, t := range old {
		if i < len(old)-int(max(limit, 0)) && t.isEmpty() {
			outdated = append(outdated, t.set)
		}
	}
	return outdated
}
