package rollout

import (
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machinefacts"
)

// stallAfter is how long a rollout may stand still before somebody should know for what it waits. What is known to be wrong is
// told at once.
const stallAfter = time.Minute

// setStalled says why a rollout does not move on.
func (s *sets) setStalled(st *v1alpha1.MachineDeploymentStatus) {
	reason, message := s.stalled(*st)
	if reason == "" {
		dropCondition(st, v1alpha1.MachineDeploymentRolloutStalled)
		return
	}
	setCondition(s.w, st, v1alpha1.MachineDeploymentCondition{
		Type: v1alpha1.MachineDeploymentRolloutStalled, Status: corev1.ConditionTrue, Reason: reason, Message: message,
	})
}

// stillSince is when the rollout last moved; ok is false while there is none, or it is known why it stands still.
func (s *sets) stillSince(st v1alpha1.MachineDeploymentStatus) (since time.Time, ok bool) {
	c := condition(st, v1alpha1.MachineDeploymentProgressing)
	if c == nil || s.d.Spec.Paused || s.d.DeletionTimestamp != nil {
		return time.Time{}, false
	}
	switch c.Reason {
	case v1alpha1.ReasonNewMachineSetAvailable, v1alpha1.ReasonMachineSetCreateError, v1alpha1.ReasonDeploymentPaused:
		return time.Time{}, false
	}
	return c.LastUpdateTime.Time, true
}

// stalled finds the cause. The first one that holds is told: what is wrong with the new machines, what they wait for, and
// what keeps the old ones.
func (s *sets) stalled(st v1alpha1.MachineDeploymentStatus) (reason, message string) {
	since, moves := s.stillSince(st)
	if !moves {
		return "", ""
	}
	if s.isUnderWay() && isInPlace(s.d) && s.w.NoTarget {
		return v1alpha1.ReasonInPlaceUpdateNotSupported, "There is no target cluster, and so no Node to update in place; the machines stay as they are"
	}
	if m := s.firstOfAny(s.hasFailedInPlace); m != nil {
		return v1alpha1.ReasonInPlaceUpdateFailed, fmt.Sprintf("Machine %s could not be updated in place: %s", m.Name, s.whyFailed(m))
	}
	if s.fresh != nil && machinefacts.MakesNone(s.newSet()) && s.standing(s.fresh) < s.fresh.size {
		return v1alpha1.ReasonMachineSetFrozen, fmt.Sprintf("MachineSet %s must not make machines", s.newSet().Name)
	}
	if m := s.first(s.fresh, hasFailedToCome); m != nil {
		op := m.Status.LastOperation
		return v1alpha1.ReasonMachineCreateFailed, fmt.Sprintf("Machine %s: %s: %s", m.Name, op.ErrorCode, op.Description)
	}
	if refused, c := s.refused(); c != nil {
		return c.Reason, fmt.Sprintf("MachineSet %s: %s", refused.Name, c.Message)
	}
	if s.w.Now.Sub(since) < stallAfter && reasonOf(st) != v1alpha1.ReasonProgressDeadlineExceeded {
		return "", ""
	}
	if m := s.first(s.fresh, func(m *v1alpha1.Machine) bool { return !s.isUsable(m) && m.DeletionTimestamp == nil }); m != nil {
		if machinefacts.IsPreservedFailed(m, s.w.Now) {
			return v1alpha1.ReasonMachinesPreserved, fmt.Sprintf("New machine %s has failed and is preserved; it is replaced when that is over", m.Name)
		}
		return v1alpha1.ReasonMachinesNotAvailable, fmt.Sprintf("New machine %s is not available yet, its phase is %q; its lastOperation says more",
			m.Name, m.Status.CurrentStatus.Phase)
	}
	if m := s.firstOfAny(func(m *v1alpha1.Machine) bool { return m.DeletionTimestamp != nil }); m != nil {
		return v1alpha1.ReasonMachinesTerminating, fmt.Sprintf("Machine %s is being deleted and counts until it is gone; its lastOperation says for what it waits", m.Name)
	}
	if s.fresh != nil && s.standing(s.fresh) < s.fresh.size {
		return v1alpha1.ReasonMachinesNotAvailable, fmt.Sprintf("MachineSet %s has %d of %d machines", s.newSet().Name, s.standing(s.fresh), s.fresh.size)
	}
	if reason, message := s.stalledByOld(); reason != "" {
		return reason, message
	}
	return s.stalledInPlace()
}

// stalledByOld finds what old sets keep that they are to give up.
func (s *sets) stalledByOld() (reason, message string) {
	for _, t := range s.old {
		for _, c := range t.set.Status.Conditions {
			if c.Type == v1alpha1.MachineSetValid && c.Status == corev1.ConditionFalse && !t.isEmpty() {
				return v1alpha1.ReasonMachinesNotDeleted, fmt.Sprintf("Old MachineSet %s is left as it is: %s", t.set.Name, c.Message)
			}
		}
		if n := s.standing(t); n > t.set.Spec.Replicas && t.set.Generation == t.set.Status.ObservedGeneration {
			return v1alpha1.ReasonMachinesNotDeleted, fmt.Sprintf("Old MachineSet %s has %d machines, is to have %d, and deletes none yet", t.set.Name, n, t.set.Spec.Replicas)
		}
	}
	if s.w.OldMachines != nil && *s.w.OldMachines > 0 {
		return v1alpha1.ReasonMachinesNotDeleted, fmt.Sprintf("Machines of old MachineSets that are not in view: %d; they are in no slot or in a wrong one, or have just gone", *s.w.OldMachines)
	}
	return "", ""
}

// stalledInPlace finds what keeps old machines from being updated.
func (s *sets) stalledInPlace() (reason, message string) {
	if !s.inPlace || !s.isUnderWay() || s.fresh == nil {
		return "", ""
	}
	if m := s.firstOfAny(s.w.isUpdating); m != nil {
		return v1alpha1.ReasonMachinesUpdating, fmt.Sprintf("Machine %s is being updated in place: %s", m.Name, s.howFar(m))
	}
	if n := s.waiting(); n > 0 && isManual(s.d) {
		return v1alpha1.ReasonNodesNotSelected, fmt.Sprintf("%d Nodes wait for the label %s=true", n, v1alpha1.LabelSelectedForUpdate)
	}
	for _, t := range s.old {
		if m := s.first(t, func(m *v1alpha1.Machine) bool { return !s.mayBeSelected(t, m) }); m != nil {
			return v1alpha1.ReasonMachinesNotAvailable, fmt.Sprintf("Old machine %s cannot be updated in place now, its phase is %q; its Node has to be there and "+
				"to have the condition InPlaceUpdate", m.Name, m.Status.CurrentStatus.Phase)
		}
	}
	return "", ""
}

// howFar says for what an update in place waits.
func (s *sets) howFar(m *v1alpha1.Machine) string {
	switch node := s.w.nodeOf(m); {
	case node == nil || machinefacts.InPlaceStage(node) == "":
		return "its Node is not drained yet"
	case !hasBegun(node) && machinefacts.AwaitsComponents(node):
		return fmt.Sprintf("its Node has the taint %s, and no other Node is updated before that is removed; in a cluster where nothing removes it, "+
			"set the annotation %s=false on the MachineDeployment and remove the taint", v1alpha1.TaintCriticalComponentsNotReady, v1alpha1.AnnotationComponentsTaint)
	default:
		return "the condition InPlaceUpdate of its Node says " + machinefacts.InPlaceStage(node)
	}
}

// hasFailedInPlace says that the update of the machine's Node has failed.
func (s *sets) hasFailedInPlace(m *v1alpha1.Machine) bool {
	node := s.w.nodeOf(m)
	return m.DeletionTimestamp == nil && node != nil && node.Labels[v1alpha1.LabelUpdateResult] == v1alpha1.UpdateResultFailed ||
		m.DeletionTimestamp == nil && m.Status.CurrentStatus.Phase == v1alpha1.MachineInPlaceUpdateFailed
}

func (s *sets) whyFailed(m *v1alpha1.Machine) string {
	if node := s.w.nodeOf(m); node != nil && node.Annotations[v1alpha1.AnnotationUpdateFailedReason] != "" {
		return node.Annotations[v1alpha1.AnnotationUpdateFailedReason]
	}
	return m.Status.LastOperation.Description
}

// refused returns the first set, the new one before the others, whose Machines the API server refuses to create or delete, and the
// condition that says so; nil when there is none. Old sets need not create any.
func (s *sets) refused() (*v1alpha1.MachineSet, *v1alpha1.MachineSetCondition) {
	for _, t := range s.all() {
		for i, c := range t.set.Status.Conditions {
			if c.Type == v1alpha1.MachineSetReplicaFailure && c.Status == corev1.ConditionTrue && (t == s.fresh || c.Reason == v1alpha1.ReasonFailedDelete) {
				return t.set, &t.set.Status.Conditions[i]
			}
		}
	}
	return nil, nil
}

// hasFailedToCome says that the last try to make the machine has failed.
func hasFailedToCome(m *v1alpha1.Machine) bool {
	op := m.Status.LastOperation
	return m.DeletionTimestamp == nil && op.Type == v1alpha1.MachineOperationCreate && op.State == v1alpha1.MachineStateFailed
}

func (s *sets) isUsable(m *v1alpha1.Machine) bool {
	available, _ := availability(s.w, s.newSet(), m)
	return available
}

// standing is how many machines of a set are not being deleted.
func (s *sets) standing(t *tally) (n int32) {
	for _, m := range s.w.Machines[t.set.UID] {
		if m.DeletionTimestamp == nil {
			n++
		}
	}
	return n
}

// first returns the first machine of a set, by name, that a condition holds for; nil when there is none.
func (s *sets) first(t *tally, holds func(*v1alpha1.Machine) bool) (found *v1alpha1.Machine) {
	if t == nil {
		return nil
	}
	for _, m := range s.w.Machines[t.set.UID] {
		if holds(m) && (found == nil || strings.Compare(m.Name, found.Name) < 0) {
			found = m
		}
	}
	return found
}

// firstOfAny returns the first machine that a condition holds for, of the new set before the others.
func (s *sets) firstOfAny(holds func(*v1alpha1.Machine) bool) *v1alpha1.Machine {
	for _, t := range s.all() {
		if m := s.first(t, holds); m != nil {
			return m
		}
	}
	return nil
}
