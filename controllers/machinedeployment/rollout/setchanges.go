package rollout

import (
	"fmt"
	"maps"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/machinefacts"
)

// setChanges brings the objects of sets in step with their sizes and with the deployment.
type setChanges struct{ *sizing }

// changes returns the sets that differ from their desired state, in that state. The new set is
// changed last.
func (s setChanges) changes() Verdict {
	v := Verdict{Do: Update}
	for _, t := range s.lastNew() {
		if t.set.DeletionTimestamp != nil || t.set.UID == "" {
			continue
		}
		desired := draftOfSet(t.set)
		desired.Spec.Replicas = t.size
		s.complement(t, desired)
		if machinefacts.Same(t.set, desired) {
			continue
		}
		v.Sets = append(v.Sets, desired)
		if t.set.Spec.Replicas != desired.Spec.Replicas {
			v.Events = append(v.Events, scaled(desired, t.set.Spec.Replicas))
		}
	}
	return v
}

// draftOfSet is draft for a set.
func draftOfSet(set *v1alpha1.MachineSet) *v1alpha1.MachineSet {
	c := *set
	c.Labels, c.Annotations = maps.Clone(set.Labels), maps.Clone(set.Annotations)
	return &c
}

// complement sets the labels and annotations of a set that belong to its size.
func (s setChanges) complement(t *tally, desired *v1alpha1.MachineSet) {
	switch {
	case t == s.newSet:
		syncNew(s.d, s.w.Owned, desired)
	case t.exist > 0: // the timeouts of machines do not depend on what they are created from; one without machines keeps those of its revision
		desired.Spec.Template.Spec.MachineConfiguration = s.d.Spec.Template.Spec.MachineConfiguration.DeepCopy()
	}
	switch {
	case t == s.newSet || t.size > 0:
		s.noteScale(desired)
	case s.wasNew(t):
		// It is written once more, before another set grows in its place: so a late write of a process
		// that has ended is rejected.
		delete(desired.Annotations, v1alpha1.AnnotationDesiredReplicas)
		delete(desired.Annotations, v1alpha1.AnnotationMaxReplicas)
	}
	s.noteChange(t, desired)
	s.noteReplaced(t, desired)
	s.annotateSet(t, desired)
	s.unfreeze(desired)
}

func scaled(set *v1alpha1.MachineSet, from int32) Event {
	direction := "up"
	if set.Spec.Replicas < from {
		direction = "down"
	}
	return Event{
		Reason:  v1alpha1.EventScalingMachineSet,
		Message: fmt.Sprintf("Scaled %s machine set %s to %d", direction, set.Name, set.Spec.Replicas),
	}
}

// noteScale records on a set what it was sized for, by which later changes are recognised.
func (s setChanges) noteScale(set *v1alpha1.MachineSet) {
	sizedFor := s.replicas - s.deferred
	metav1.SetMetaDataAnnotation(&set.ObjectMeta, v1alpha1.AnnotationDesiredReplicas, strconv.Itoa(int(sizedFor)))
	metav1.SetMetaDataAnnotation(&set.ObjectMeta, v1alpha1.AnnotationMaxReplicas, strconv.Itoa(int(sizedFor+s.surge)))
}

// noteReplaced records on a set that gets another size which set replaces its machines. The set
// reports it as the reason of their deletion.
func (s setChanges) noteReplaced(t *tally, set *v1alpha1.MachineSet) {
	switch {
	case t != s.newSet && s.replaces && set.Spec.Replicas < t.set.Spec.Replicas:
		metav1.SetMetaDataAnnotation(&set.ObjectMeta, v1alpha1.AnnotationReplacedBy, s.nameOfNew())
	case t == s.newSet || set.Spec.Replicas != t.set.Spec.Replicas:
		delete(set.Annotations, v1alpha1.AnnotationReplacedBy)
	}
}

// nameOfNew returns the name of the new set: that which it will have while there is none.
func (s *sets) nameOfNew() string {
	if s.newSet != nil {
		return s.newSet.set.Name
	}
	return setName(s.d.Name, templateHash(&s.d.Spec.Template, s.d.Status.CollisionCount))
}

// annotateSet records on a set what the Nodes of its machines have to carry. The machine controller
// reads it there, so that Nodes for which nothing changes need not be read.
//
// While machines are rolled, or updated in place, new pods keep off the Nodes of old machines where
// they can. A set that is the new one again has no such annotation.
//
// While machines are replaced, with any strategy, the cluster-autoscaler must not remove any of
// them, neither old nor new. The annotation is true from the first step until the rollout is
// complete, and then false: Nodes of a set without it are not changed. It is false, too, when only
// the end of the rollout was seen: the controller that began it has annotated the Nodes itself.
func (s setChanges) annotateSet(t *tally, desired *v1alpha1.MachineSet) {
	underWay := s.isUnderWay()
	switch {
	case t == s.newSet:
		delete(desired.Annotations, v1alpha1.AnnotationPreferNoSchedule)
	case underWay && !s.d.Spec.Paused && (isRolling(s.d) || s.inPlace) && !t.isEmpty():
		metav1.SetMetaDataAnnotation(&desired.ObjectMeta, v1alpha1.AnnotationPreferNoSchedule, v1alpha1.PreferNoScheduleTrue)
	}
	s.closeOrOpen(t, desired)
	rolling := desired.Annotations[v1alpha1.AnnotationRolling]
	switch {
	case t != s.newSet && t.isEmpty():
	case (underWay || s.succeeds(t)) && s.w.KeepFromAutoscaler:
		metav1.SetMetaDataAnnotation(&desired.ObjectMeta, v1alpha1.AnnotationRolling, v1alpha1.RollingTrue)
	case s.isComplete() && (rolling == v1alpha1.RollingTrue || rolling == "" && s.wasTakenOver()),
		rolling == v1alpha1.RollingTrue && !s.w.KeepFromAutoscaler:
		metav1.SetMetaDataAnnotation(&desired.ObjectMeta, v1alpha1.AnnotationRolling, v1alpha1.RollingFalse)
	}
}

// succeeds reports whether a set is created after all old machines were deleted: its rollout ends
// with its own machines.
func (s setChanges) succeeds(t *tally) bool {
	return t == s.newSet && t.set.UID == "" && len(s.old) > 0
}

// wasTakenOver reports whether a rollout that another controller began, and of which no old machine
// is left, is not reported as complete.
func (s setChanges) wasTakenOver() bool {
	last := reasonOf(s.d.Status)
	return len(s.old) > 0 && !s.d.Spec.Paused && last != "" && last != v1alpha1.ReasonNewMachineSetAvailable
}

// closeOrOpen keeps a set from creating machines while its machines move to another set: otherwise
// they would be replaced. The new set of a rollback is kept from it, too, until all updates to the
// earlier template have ended.
func (s setChanges) closeOrOpen(t *tally, desired *v1alpha1.MachineSet) {
	_, disabled := desired.Labels[v1alpha1.LabelScaleUpDisabled]
	isOld := t != s.newSet && s.newSet != nil && s.inPlace
	switch {
	case inPlaceUpdates{s.sets}.isSource(t), isOld && s.isUnderWay() && !s.d.Spec.Paused && !t.isEmpty():
		if !disabled {
			if desired.Labels == nil {
				desired.Labels = map[string]string{}
			}
			desired.Labels[v1alpha1.LabelScaleUpDisabled] = "true"
		}
	case disabled && !isOld && awaited(t, s.w.Machines[t.set.UID]) == 0: // else a machine would be created twice
		delete(desired.Labels, v1alpha1.LabelScaleUpDisabled)
	}
}

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

// frozen returns the set that is frozen, the new one before the others; nil when none is.
func (s *sets) frozen() *v1alpha1.MachineSet {
	for _, t := range s.all() {
		if machinefacts.IsFrozen(t.set) {
			return t.set
		}
	}
	return nil
}

// frozenCondition returns the condition Frozen, which names the frozen set.
func (s report) frozenCondition() machinefacts.Condition {
	set := s.frozen()
	if set == nil {
		return machinefacts.Condition{}
	}
	return machinefacts.True(v1alpha1.ReasonMachineDeploymentStateSync,
		fmt.Sprintf("MachineSet %s is frozen and creates no machines; end the freeze with the annotation %s=true when its cause is gone",
			set.Name, v1alpha1.AnnotationUnfreeze))
}

// unfreeze ends the freeze of a set when the deployment has the annotation for it.
func (s setChanges) unfreeze(desired *v1alpha1.MachineSet) {
	if _, requested := s.d.Annotations[v1alpha1.AnnotationUnfreeze]; requested {
		delete(desired.Labels, v1alpha1.LabelFreeze)
		delete(desired.Annotations, v1alpha1.AnnotationOvershooting)
	}
}

// noteFreeze sets the deployment's own label while one of its sets is frozen. A request to unfreeze
// them has been executed by now.
func (s report) noteFreeze(d *v1alpha1.MachineDeployment) {
	delete(d.Annotations, v1alpha1.AnnotationUnfreeze)
	if s.frozen() == nil {
		delete(d.Labels, v1alpha1.LabelFreeze)
		return
	}
	d.Labels[v1alpha1.LabelFreeze] = "True" // it has labels: that of its slot
}
