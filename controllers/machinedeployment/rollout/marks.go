package rollout

import (
	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
)

// mark puts on a set what the Nodes of its machines are to carry. Whoever sees to the Nodes reads it there, so that nobody
// has to look at a Node for which nothing changes.
//
// While machines are rolled, or updated in place, new pods keep off the Nodes of old machines where they can. A set that is the new one again has
// no such mark.
//
// While machines are replaced, in whatever way, the cluster-autoscaler is to remove none of them, neither old nor new. The
// mark says true from the first step until all is done, and then false: Nodes of a set without it are left as they are. It
// says false, too, when the end is all that was seen of the rollout: whoever began it has marked Nodes himself.
func (s *sets) mark(t *tally, wanted *v1alpha1.MachineSet) {
	underWay := s.isUnderWay()
	switch {
	case t == s.fresh:
		delete(wanted.Annotations, v1alpha1.AnnotationPreferNoSchedule)
	case underWay && !s.d.Spec.Paused && (isRolling(s.d) || s.inPlace) && !t.isEmpty():
		annotate(wanted, v1alpha1.AnnotationPreferNoSchedule, v1alpha1.PreferNoScheduleTrue)
	}
	s.closeOrOpen(t, wanted)
	marked := wanted.Annotations[v1alpha1.AnnotationRolling]
	switch {
	case t != s.fresh && t.isEmpty():
	case (underWay || s.succeeds(t)) && s.w.KeepFromAutoscaler:
		annotate(wanted, v1alpha1.AnnotationRolling, v1alpha1.RollingTrue)
	case s.isComplete() && (marked == v1alpha1.RollingTrue || marked == "" && s.wasTakenOver()),
		marked == v1alpha1.RollingTrue && !s.w.KeepFromAutoscaler:
		annotate(wanted, v1alpha1.AnnotationRolling, v1alpha1.RollingFalse)
	}
}

// succeeds reports whether a set is about to be made when all old machines have gone: its rollout ends with its own.
func (s *sets) succeeds(t *tally) bool { return t == s.fresh && t.set.UID == "" && len(s.old) > 0 }

// wasTakenOver reports whether a rollout which somebody else began, and of which no old machine is left, is not said to be done yet.
func (s *sets) wasTakenOver() bool {
	last := reasonOf(s.d.Status)
	return len(s.old) > 0 && !s.d.Spec.Paused && last != "" && last != v1alpha1.ReasonNewMachineSetAvailable
}
