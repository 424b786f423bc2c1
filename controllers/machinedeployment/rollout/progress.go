package rollout

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/machinefacts"
)

// setProgressing reports how far the rollout of the new set is. A deployment that was complete and
// is only resized stays so: that is what the cluster-autoscaler needs to scale it down.
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
	case last == v1alpha1.ReasonNewMachineSetAvailable && s.newSet != nil && !s.isUnderWay() && s.newSet.set.Annotations[v1alpha1.AnnotationRolling] != v1alpha1.RollingTrue:
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
