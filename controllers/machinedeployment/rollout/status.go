package rollout

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1/validation"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/machinefacts"
)

// report contains what a status and its Events show of a deployment.
type report struct{ *sets }

// finish ends the pass with the status.
func finish(s *sets) Verdict {
	d := draft(s.d)
	d.Status = status(s)
	writeNamed(d, report{s}.stillNamed())
	report{s}.noteFreeze(d)
	v := Verdict{
		Do: Rest, Deployment: d, Replacing: s.isUnderWay(), Wake: machinefacts.Sooner(s.nextChange(), report{s}.nextDeadline(d.Status)),
	}
	if s.w.awaitsTarget() {
		v.Wake = machinefacts.Sooner(v.Wake, machinefacts.TargetRecheck)
	}
	if s.w.Done.CreateError != "" && !isKnownToFail(s.d) {
		v.Events = []Event{{Reason: v1alpha1.ReasonMachineSetCreateError, Message: s.w.Done.CreateError}}
	}
	v.Events = append(v.Events, report{s}.rolloutEvents(d.Status)...)
	return v
}

// isKnownToFail reports whether the status already has the failure to create the new set.
func isKnownToFail(d *v1alpha1.MachineDeployment) bool {
	c := machinefacts.ConditionOfDeployment(&d.Status, v1alpha1.MachineDeploymentProgressing)
	return c.Status == corev1.ConditionFalse && c.Reason == v1alpha1.ReasonMachineSetCreateError
}

// status works out the deployment's status from its machines. Which of them have failed is taken
// from the sets.
func status(all *sets) v1alpha1.MachineDeploymentStatus {
	s := report{all}
	st := *s.d.Status.DeepCopy()
	st.ObservedGeneration = s.d.Generation
	st.Selector = metav1.FormatLabelSelector(s.d.Spec.Selector)
	st.Replicas, st.UpdatedReplicas, st.ReadyReplicas, st.AvailableReplicas, st.PreservedFailedReplicas = 0, 0, 0, 0, 0
	st.FailedMachines = nil
	wanted := int32(0)
	for _, t := range s.lastNew() {
		st.Replicas += t.seen.all
		st.ReadyReplicas += t.seen.ready
		st.AvailableReplicas += t.seen.available
		st.PreservedFailedReplicas += t.seen.preserved
		wanted += t.set.Spec.Replicas
		if t.set.Status.FailedMachines != nil {
			for _, failed := range *t.set.Status.FailedMachines {
				st.FailedMachines = append(st.FailedMachines, failed.DeepCopy())
			}
		}
	}
	if s.newSet != nil {
		st.UpdatedReplicas = s.newSet.seen.all
	}
	st.UnavailableReplicas = max(wanted-st.AvailableReplicas, 0)
	set := func(of v1alpha1.MachineDeploymentConditionType, is machinefacts.Condition) {
		machinefacts.SetConditionOfDeployment(&st, of, is, s.w.Now)
	}
	set(v1alpha1.MachineDeploymentValid, s.validity())
	set(v1alpha1.MachineDeploymentAvailable, s.availability(st))
	s.setProgressing(&st)
	set(v1alpha1.MachineDeploymentReplicaFailure, s.ofSets(v1alpha1.MachineSetReplicaFailure))
	set(v1alpha1.MachineDeploymentMachineCreateFailure, s.ofSets(v1alpha1.MachineSetMachineCreateFailure))
	set(v1alpha1.MachineDeploymentMachinesReleased, s.ofSets(v1alpha1.MachineSetMachinesReleased))
	set(v1alpha1.MachineDeploymentCreationDelayed, s.ofSets(v1alpha1.MachineSetCreationDelayed))
	set(v1alpha1.MachineDeploymentFrozen, s.frozenCondition())
	set(v1alpha1.MachineDeploymentRolloutStalled, s.stalled(st))
	return st
}

// validity returns the condition Valid.
func (s report) validity() machinefacts.Condition {
	before := machinefacts.ConditionOfDeployment(&s.d.Status, v1alpha1.MachineDeploymentValid)
	if is, waits := machinefacts.AwaitsTarget(before, s.w.TargetProblem, s.w.TargetPending); waits {
		return is
	}
	class := machinefacts.Condition{}
	if s.newSet != nil {
		if is := machinefacts.ConditionOfSet(&s.newSet.set.Status, v1alpha1.MachineSetValid); is.Reason == v1alpha1.ReasonInvalidClass {
			class = is
		}
	}
	remarks := validation.RemarksOnMachineDeployment(&s.d.Spec)
	return machinefacts.Validity(class, append(remarks, validation.RemarksOnNodeGroup(s.d.Annotations)...))
}

func (s report) availability(st v1alpha1.MachineDeploymentStatus) machinefacts.Condition {
	if st.AvailableReplicas >= s.least(st.PreservedFailedReplicas) {
		return machinefacts.True(v1alpha1.ReasonMinimumReplicasAvailable, "Deployment has minimum availability.")
	}
	return machinefacts.False(v1alpha1.ReasonMinimumReplicasUnavailable, "Deployment does not have minimum availability.")
}

// ofSets returns the condition of the first set that has one of the type, the new one first.
func (s report) ofSets(t v1alpha1.MachineSetConditionType) machinefacts.Condition {
	for _, set := range s.all() {
		if is := machinefacts.ConditionOfSet(&set.set.Status, t); is != (machinefacts.Condition{}) {
			return is
		}
	}
	return machinefacts.Condition{}
}

// setProgressing reports how far the rollout of the new set is. A deployment that was complete and
// is only resized stays so: the cluster-autoscaler needs that to scale it down.
func (s report) setProgressing(st *v1alpha1.MachineDeploymentStatus) {
	c := s.progress(*st)
	if c == (machinefacts.Condition{}) {
		return
	}
	machinefacts.SetConditionOfDeployment(st, v1alpha1.MachineDeploymentProgressing, c, s.w.Now)
	if c.Reason == v1alpha1.ReasonMachineSetUpdated { // each step counts
		machinefacts.MachineDeploymentCondition(st, v1alpha1.MachineDeploymentProgressing).LastUpdateTime = metav1.NewTime(s.w.Now)
	}
}

// progress returns the new condition Progressing; the zero value keeps the last one.
func (s report) progress(st v1alpha1.MachineDeploymentStatus) (next machinefacts.Condition) {
	last := reasonOf(s.d.Status)
	switch {
	case s.d.DeletionTimestamp != nil:
		return unknown(v1alpha1.ReasonDeleting, "The deployment is being deleted, after its machine sets and their machines")
	case s.newSet == nil && s.w.Done.CreateError != "":
		return machinefacts.False(v1alpha1.ReasonMachineSetCreateError, s.w.Done.CreateError)
	case s.d.Spec.Paused && last == v1alpha1.ReasonProgressDeadlineExceeded:
		return next
	case s.d.Spec.Paused && s.d.Spec.RollbackTo != nil:
		return unknown(v1alpha1.ReasonDeploymentPaused, "Deployment is paused, and spec.rollbackTo waits until it is resumed")
	case s.d.Spec.Paused:
		return unknown(v1alpha1.ReasonDeploymentPaused, "Deployment is paused")
	case s.isComplete():
		return machinefacts.True(v1alpha1.ReasonNewMachineSetAvailable,
			fmt.Sprintf("MachineSet %q has successfully progressed.", s.newSet.set.Name))
	case last == v1alpha1.ReasonNewMachineSetAvailable && s.newSet != nil && !s.isUnderWay() &&
		s.newSet.set.Annotations[v1alpha1.AnnotationRolling] != v1alpha1.RollingTrue:
		return next
	case last == "" && s.isFilled(): // its status was lost, and it shrinks: no rollout begins, and none is reported
		return next
	case last == v1alpha1.ReasonDeploymentPaused:
		return unknown(v1alpha1.ReasonDeploymentResumed, "Deployment is resumed")
	case s.begins(last):
		return s.beginning()
	case s.newSet != nil && hasMoved(s.d.Status, st):
		return s.moved()
	case s.isOverdue():
		return machinefacts.False(v1alpha1.ReasonProgressDeadlineExceeded,
			fmt.Sprintf("The rollout has made no progress for %d s; the condition RolloutStalled has the cause", *s.d.Spec.ProgressDeadlineSeconds))
	}
	return next
}

func unknown(reason, message string) machinefacts.Condition {
	return machinefacts.Condition{Status: corev1.ConditionUnknown, Reason: reason, Message: message}
}

// begins reports whether the rollout of the new set was not reported yet: nothing was, or the
// report is about another set.
func (s report) begins(last string) bool {
	switch last {
	case "", v1alpha1.ReasonNewMachineSetAvailable, v1alpha1.ReasonMachineSetCreateError:
		return true
	}
	return s.d.Generation != s.d.Status.ObservedGeneration && s.newSet != nil && s.newSet.running == 0
}

func (s report) beginning() machinefacts.Condition {
	switch {
	case s.newSet == nil:
		return s.moved()
	case s.newSet.set.Annotations[v1alpha1.AnnotationRevisionHistory] != "":
		return machinefacts.True(v1alpha1.ReasonFoundNewMachineSet, fmt.Sprintf("Found new machine set %q", s.newSet.set.Name))
	}
	return machinefacts.True(v1alpha1.ReasonNewMachineSetCreated, fmt.Sprintf("Created new machine set %q", s.newSet.set.Name))
}

func (s report) moved() machinefacts.Condition {
	message := "Old machines are deleted before there is a new machine set."
	if s.newSet != nil {
		message = fmt.Sprintf("MachineSet %q is progressing.", s.newSet.set.Name)
	}
	return machinefacts.True(v1alpha1.ReasonMachineSetUpdated, message)
}

// hasMoved reports whether there are more new machines than before, or fewer old ones, or more that
// can be used.
func hasMoved(before, now v1alpha1.MachineDeploymentStatus) bool {
	return now.UpdatedReplicas > before.UpdatedReplicas ||
		now.Replicas-now.UpdatedReplicas < before.Replicas-before.UpdatedReplicas ||
		now.ReadyReplicas > before.ReadyReplicas || now.AvailableReplicas > before.AvailableReplicas
}

// deadline returns when the progress deadline is over; ok is false where there is none.
func (s report) deadline(st v1alpha1.MachineDeploymentStatus) (deadline time.Time, ok bool) {
	c := machinefacts.MachineDeploymentCondition(&st, v1alpha1.MachineDeploymentProgressing)
	if s.d.Spec.ProgressDeadlineSeconds == nil || s.d.Spec.Paused || c == nil || c.LastUpdateTime.IsZero() {
		return time.Time{}, false
	}
	switch c.Reason {
	case v1alpha1.ReasonNewMachineSetAvailable, v1alpha1.ReasonProgressDeadlineExceeded, v1alpha1.ReasonMachineSetCreateError:
		return time.Time{}, false
	}
	return c.LastUpdateTime.Add(time.Duration(*s.d.Spec.ProgressDeadlineSeconds) * time.Second), true
}

func (s report) isOverdue() bool {
	deadline, ok := s.deadline(s.d.Status)
	return ok && s.w.Now.After(deadline)
}

// nextDeadline returns when, from now, the status changes because nothing has happened; 0 means
// never.
func (s report) nextDeadline(st v1alpha1.MachineDeploymentStatus) (next time.Duration) {
	if deadline, ok := s.deadline(st); ok {
		next = max(deadline.Sub(s.w.Now), 0) + time.Millisecond
	}
	if since, ok := s.stillSince(st); ok {
		if wait := since.Add(stallAfter).Sub(s.w.Now); wait > 0 {
			next = machinefacts.Sooner(next, wait)
		} else if s.uncached() > 0 {
			next = machinefacts.Sooner(next, stallAfter) // no event reports what the cache does not show
		}
	}
	return next
}

func reasonOf(s v1alpha1.MachineDeploymentStatus) string {
	return machinefacts.ConditionOfDeployment(&s, v1alpha1.MachineDeploymentProgressing).Reason
}

// started returns the Event of a rollout that begins: with the creation of its new set where
// beginsWithSet, else with the write of the deployment's revision. Each rollout has another one.
// newSet is nil where old machines are deleted before it is created.
func started(revision string, newSet *v1alpha1.MachineSet) Event {
	message := "Started the rollout of revision " + revision
	if newSet != nil {
		message += ", machine set " + newSet.Name
	}
	return Event{Reason: v1alpha1.EventRolloutStarted, Message: message}
}

// beginsWithSet reports whether a rollout whose new set does not exist begins with the creation of
// that, which the API server may refuse, and not with the deletion of old machines.
func beginsWithSet(d *v1alpha1.MachineDeployment, owned []*v1alpha1.MachineSet) bool {
	return !isRecreating(d) || !slices.ContainsFunc(owned, func(s *v1alpha1.MachineSet) bool { return s.DeletionTimestamp == nil })
}

// rolloutEvents returns the Events of what a status reports of a rollout, and the previous one does
// not.
func (s report) rolloutEvents(st v1alpha1.MachineDeploymentStatus) (all []Event) {
	if is := machinefacts.ConditionOfDeployment(&st, v1alpha1.MachineDeploymentValid); is.Reason == v1alpha1.ReasonTargetUnavailable &&
		machinefacts.ConditionOfDeployment(&s.d.Status, v1alpha1.MachineDeploymentValid).Reason != is.Reason {
		all = append(all, Event{is.Reason, is.Message})
	}
	before, is := reasonOf(s.d.Status), reasonOf(st)
	wasStalled := machinefacts.MachineDeploymentCondition(&s.d.Status, v1alpha1.MachineDeploymentRolloutStalled)
	stalled := machinefacts.MachineDeploymentCondition(&st, v1alpha1.MachineDeploymentRolloutStalled)
	if before != is {
		switch v1alpha1.ReasonDeploymentPaused {
		case is:
			all = append(all, s.paused())
		case before:
			all = append(all, Event{v1alpha1.EventRolloutResumed, "The deployment is resumed"})
		}
		if is == v1alpha1.ReasonNewMachineSetAvailable {
			all = append(all,
				Event{v1alpha1.EventRolloutComplete, fmt.Sprintf("The rollout of revision %s is complete: machine set %s has %d machines",
					s.d.Annotations[v1alpha1.AnnotationRevision], s.newSet.set.Name, st.UpdatedReplicas)})
		}
	} else if is == v1alpha1.ReasonProgressDeadlineExceeded && s.d.Spec.Paused && wasStalled != nil { // which Progressing does not report
		all = append(all, s.paused())
	}
	if stalled != nil && (wasStalled == nil || wasStalled.Reason != stalled.Reason) {
		all = append(all, Event{v1alpha1.EventRolloutStalled, stalled.Reason + ": " + stalled.Message})
	}
	if s.d.Spec.Paused && s.d.Spec.RollbackTo != nil && s.d.Generation != s.d.Status.ObservedGeneration {
		all = append(all, Event{
			v1alpha1.EventRollbackWaits, "The rollback waits, because the deployment is paused; set spec.paused to false, or remove spec.rollbackTo",
		})
	}
	return all
}

func (s report) paused() Event {
	message := "The deployment is paused"
	if s.isUnderWay() {
		message += ", and machines of earlier templates are left"
	}
	return Event{v1alpha1.EventRolloutPaused, message}
}
