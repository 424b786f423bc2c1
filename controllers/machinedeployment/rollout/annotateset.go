package rollout

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
)

// annotateSet records on a set what the Nodes of its machines have to carry. The machine controller reads it there, so that Nodes for which
// nothing changes need not be read.
//
// While machines are rolled, or updated in place, new pods keep off the Nodes of old machines where they can. A set that is the new one again has
// no such annotation.
//
// While machines are replaced, in whatever way, the cluster-autoscaler must not remove any of them, neither old nor new. The annotation is
// true from the first step until the rollout is complete, and then false: Nodes of a set without it are not changed. It is false,
// too, when only the end of the rollout was seen: the controller that began it has annotated the Nodes itself.
func (s *sets) annotateSet(t *tally, desired *v1alpha1.MachineSet) {
	underWay := s.isUnderWay()
	switch {
	case t == s.fresh:
		delete(desired.Annotations, v1alpha1.AnnotationPreferNoSchedule)
	case underWay && !s.d.Spec.Paused && (isRolling(s.d) || s.inPlace) && !t.isEmpty():
		metav1.SetMetaDataAnnotation(&desired.ObjectMeta, v1alpha1.AnnotationPreferNoSchedule, v1alpha1.PreferNoScheduleTrue)
	}
	s.closeOrOpen(t, desired)
	rolling := desired.Annotations[v1alpha1.AnnotationRolling]
	switch {
	case t != s.fresh && t.isEmpty():
	case (underWay || s.succeeds(t)) && s.w.KeepFromAutoscaler:
		metav1.SetMetaDataAnnotation(&desired.ObjectMeta, v1alpha1.AnnotationRolling, v1alpha1.RollingTrue)
	case s.isComplete() && (rolling == v1alpha1.RollingTrue || rolling == "" && s.wasTakenOver()),
		rolling == v1alpha1.RollingTrue && !s.w.KeepFromAutoscaler:
		metav1.SetMetaDataAnnotation(&desired.ObjectMeta, v1alpha1.AnnotationRolling, v1alpha1.RollingFalse)
	}
}

// succeeds reports whether a set is created after all old machines were deleted: its rollout ends with its own machines.
func (s *sets) succeeds(t *tally) bool { return t == s.fresh && t.set.UID == "" && len(s.old) > 0 }

// wasTakenOver reports whether a rollout that another controller began, and of which no old machine is left, is not reported as complete.
func (s *sets) wasTakenOver() bool {
	last := reasonOf(s.d.Status)
	return len(s.old) > 0 && !s.d.Spec.Paused && last != "" && last != v1alpha1.ReasonNewMachineSetAvailable
}
