package rollout

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/machinefacts"
)

// stallAfter is how long a rollout waits before the condition RolloutStalled reports what it waits
// for. Known failures are reported at once.
const stallAfter = time.Minute

// stalls finds the cause for which a rollout makes no progress.
type stalls struct{ *sets }

// stallCheck finds one cause. find returns the condition RolloutStalled for it, whose message has
// the object, the fact, and what the user does about it; none when the rollout does not stall for
// it.
type stallCheck struct {
	name string
	find func(stalls) machinefacts.Condition
}

// failureChecks find known failures, which are reported at once. The first check that finds a cause
// decides: a cause for all machines comes before one for a single machine, and what the user has
// set before what the cloud and the API server answer.
var failureChecks = []stallCheck{
	{"in-place update without target cluster", stalls.findNoTarget},
	{"in-place update failed", stalls.findFailedUpdate},
	{"new MachineSet frozen", stalls.findFrozen},
	{"machine creation failed", stalls.findFailedCreation},
	{"requests rejected by the API server", stalls.findRejected},
}

// waitChecks find what a rollout waits for, which is reported after stallAfter: most rollouts wait
// for each of these for a short while. The first check that finds a cause decides: the new machines
// come before the old ones, since old machines are deleted only when new ones are available.
var waitChecks = []stallCheck{
	{"new machine preserved", stalls.findPreserved},
	{"new machine not available", stalls.findUnavailable},
	{"machine terminating", stalls.findTerminating},
	{"new machines missing", stalls.findMissing},
	{"old MachineSet invalid", stalls.findInvalid},
	{"deletions held", stalls.findHeld},
	{"old machines not deleted", stalls.findNotDeleted},
	{"old machines not in the cache", stalls.findUncached},
	{"in-place update in progress", stalls.findUpdating},
	{"Nodes not selected", stalls.findNotSelected},
	{"old machine not ready for its in-place update", stalls.findNotSelectable},
}

// stillSince returns when the rollout last made progress; ok is false when there is no rollout, or
// Progressing has the cause.
func (s report) stillSince(st v1alpha1.MachineDeploymentStatus) (since time.Time, ok bool) {
	c := machinefacts.MachineDeploymentCondition(&st, v1alpha1.MachineDeploymentProgressing)
	if c == nil || s.d.Spec.Paused || s.d.DeletionTimestamp != nil {
		return time.Time{}, false
	}
	switch c.Reason {
	case v1alpha1.ReasonNewMachineSetAvailable, v1alpha1.ReasonMachineSetCreateError, v1alpha1.ReasonDeploymentPaused:
		return time.Time{}, false
	}
	return c.LastUpdateTime.Time, true
}

// stalled returns the condition RolloutStalled; none while the rollout makes progress, and while it
// has waited for less than stallAfter.
func (s report) stalled(st v1alpha1.MachineDeploymentStatus) machinefacts.Condition {
	since, ok := s.stillSince(st)
	if !ok {
		return machinefacts.Condition{}
	}
	checks := failureChecks
	if s.w.Now.Sub(since) >= stallAfter || reasonOf(st) == v1alpha1.ReasonProgressDeadlineExceeded {
		checks = slices.Concat(failureChecks, waitChecks)
	}
	for _, check := range checks {
		if cause := check.find(stalls(s)); cause != (machinefacts.Condition{}) {
			return cause
		}
	}
	return machinefacts.Condition{}
}

// howFar returns what an in-place update waits for.
func howFar(node *corev1.Node) string {
	switch {
	case node == nil || machinefacts.InPlaceStage(node) == "":
		return "its Node is not drained yet"
	case !hasBegun(node) && machinefacts.AwaitsComponents(node):
		return fmt.Sprintf("its Node has the taint %s, and no other Node is updated until the taint is removed; where no component removes it, "+
			"set the annotation %s=false on the MachineDeployment and remove the taint", v1alpha1.TaintCriticalComponentsNotReady,
			v1alpha1.AnnotationComponentsTaint)
	default:
		return fmt.Sprintf("its Node has the condition %s with the reason %s", v1alpha1.NodeInPlaceUpdate, machinefacts.InPlaceStage(node))
	}
}

// hasFailedInPlace reports whether the update of the machine's Node has failed.
func (s stalls) hasFailedInPlace(m *v1alpha1.Machine) bool {
	node := nodeOf(s.w.Nodes, m)
	return m.DeletionTimestamp == nil && (node != nil && node.Labels[v1alpha1.LabelUpdateResult] == v1alpha1.UpdateResultFailed ||
		m.Status.CurrentStatus.Phase == v1alpha1.MachineInPlaceUpdateFailed)
}

// hasFailedCreation reports whether the last attempt to create the machine has failed.
func hasFailedCreation(m *v1alpha1.Machine) bool {
	op := m.Status.LastOperation
	return m.DeletionTimestamp == nil && op.Type == v1alpha1.MachineOperationCreate && op.State == v1alpha1.MachineStateFailed
}

// standing returns how many machines of a set are not being deleted.
func (s stalls) standing(t *tally) (n int32) {
	for _, m := range s.w.Machines[t.set.UID] {
		if m.DeletionTimestamp == nil {
			n++
		}
	}
	return n
}

// first returns the first machine of a set, by name, for which a condition holds; nil when there is
// none.
func (s stalls) first(t *tally, matches func(*v1alpha1.Machine) bool) (found *v1alpha1.Machine) {
	if t == nil {
		return nil
	}
	for _, m := range s.w.Machines[t.set.UID] {
		if matches(m) && (found == nil || strings.Compare(m.Name, found.Name) < 0) {
			found = m
		}
	}
	return found
}

// firstOfAny returns the first machine for which a condition holds, those of the new set before the
// others.
func (s stalls) firstOfAny(matches func(*v1alpha1.Machine) bool) *v1alpha1.Machine {
	for _, t := range s.all() {
		if m := s.first(t, matches); m != nil {
			return m
		}
	}
	return nil
}

// findNoTarget finds an in-place update where no target cluster is configured, so that there are no
// Nodes to update. The user chooses another strategy.
func (s stalls) findNoTarget() (cause machinefacts.Condition) {
	if !s.isUnderWay() || !IsInPlace(s.d) || !s.w.NoTarget {
		return cause
	}
	return machinefacts.True(v1alpha1.ReasonInPlaceUpdateNotSupported, fmt.Sprintf(
		"There is no target cluster, so the machines have no Nodes to update in place and keep their template; "+
			"set spec.strategy.type to %s or %s",
		v1alpha1.RollingUpdateMachineDeploymentStrategyType, v1alpha1.RecreateMachineDeploymentStrategyType))
}

// findFailedUpdate finds a machine whose Node was not updated in place. The user corrects the cause
// and removes the label update-result from the Node, or waits until the machine is replaced after
// its health timeout.
func (s stalls) findFailedUpdate() (cause machinefacts.Condition) {
	m := s.firstOfAny(s.hasFailedInPlace)
	if m == nil {
		return cause
	}
	why := m.Status.LastOperation.Description
	if node := nodeOf(s.w.Nodes, m); node != nil && node.Annotations[v1alpha1.AnnotationUpdateFailedReason] != "" {
		why = node.Annotations[v1alpha1.AnnotationUpdateFailedReason]
	}
	return machinefacts.True(v1alpha1.ReasonInPlaceUpdateFailed, fmt.Sprintf(
		"Machine %s could not be updated in place: %s; to retry the update, correct the cause and remove the label %s from the Node",
		m.Name, why, v1alpha1.LabelUpdateResult))
}

// findFrozen finds a new MachineSet that needs more machines and must not create any, because of
// one of its labels. The user ends the freeze, or removes the label, when its cause is gone.
func (s stalls) findFrozen() (cause machinefacts.Condition) {
	if s.newSet == nil || !machinefacts.CreatesNone(s.newSet.set) || s.standing(s.newSet) >= s.newSet.size {
		return cause
	}
	label, end := v1alpha1.LabelScaleUpDisabled, "remove the label when the in-place update is over"
	if machinefacts.IsFrozen(s.newSet.set) {
		label, end = v1alpha1.LabelFreeze, "end the freeze with the annotation "+v1alpha1.AnnotationUnfreeze+"=true when its cause is gone"
	}
	return machinefacts.True(v1alpha1.ReasonMachineSetFrozen,
		fmt.Sprintf("MachineSet %s must not create machines while it has the label %s; %s", s.newSet.set.Name, label, end))
}

// findFailedCreation finds a new machine that could not be created. The user corrects what the
// error names, or rolls back.
func (s stalls) findFailedCreation() (cause machinefacts.Condition) {
	m := s.first(s.newSet, hasFailedCreation)
	if m == nil {
		return cause
	}
	op := m.Status.LastOperation
	return machinefacts.True(v1alpha1.ReasonMachineCreateFailed,
		fmt.Sprintf("Machine %s could not be created: %s: %s", m.Name, op.ErrorCode, op.Description))
}

// findRejected finds a MachineSet, the new one before the others, whose requests to create or
// delete Machines the API server rejects; old sets need not create any. The user corrects the
// quota, webhook or admission policy that the message names.
func (s stalls) findRejected() (cause machinefacts.Condition) {
	for _, t := range s.all() {
		c := machinefacts.ConditionOfSet(&t.set.Status, v1alpha1.MachineSetReplicaFailure)
		if c.IsTrue() && (t == s.newSet || c.Reason == v1alpha1.ReasonFailedDelete) {
			return machinefacts.True(c.Reason, fmt.Sprintf("API server rejects requests of MachineSet %s: %s", t.set.Name, c.Message))
		}
	}
	return cause
}

// findPreserved finds a new machine that has failed and is preserved, so that it is not replaced.
// The user ends the preservation.
func (s stalls) findPreserved() (cause machinefacts.Condition) {
	m := s.firstUnavailable()
	if m == nil || !machinefacts.IsPreservedFailed(m, s.w.Now) {
		return cause
	}
	return machinefacts.True(v1alpha1.ReasonMachinesPreserved, fmt.Sprintf(
		"New machine %s has failed and is not replaced while it is preserved; end its preservation with the annotation %s=%s on its Node or "+
			"on the machine",
		m.Name, v1alpha1.AnnotationPreserve, v1alpha1.PreserveFalse))
}

// findUnavailable finds a new machine that is not available. The user follows its lastOperation.
func (s stalls) findUnavailable() (cause machinefacts.Condition) {
	m := s.firstUnavailable()
	if m == nil || machinefacts.IsPreservedFailed(m, s.w.Now) {
		return cause
	}
	return machinefacts.True(v1alpha1.ReasonMachinesNotAvailable,
		fmt.Sprintf("New machine %s is not available, its phase is %q; see its lastOperation", m.Name, m.Status.CurrentStatus.Phase))
}

// findTerminating finds a machine whose deletion has not ended. It counts for maxSurge until then,
// so no machine is created in its place. The user follows its lastOperation, mostly to a pod that
// cannot be evicted.
func (s stalls) findTerminating() (cause machinefacts.Condition) {
	m := s.firstOfAny(func(m *v1alpha1.Machine) bool { return m.DeletionTimestamp != nil })
	if m == nil {
		return cause
	}
	return machinefacts.True(v1alpha1.ReasonMachinesTerminating,
		fmt.Sprintf("Machine %s is being deleted and counts until its deletion has ended; see its lastOperation", m.Name))
}

// findMissing finds a new MachineSet that has not created all of its machines. The user reads its
// conditions and Events.
func (s stalls) findMissing() (cause machinefacts.Condition) {
	if s.newSet == nil || s.standing(s.newSet) >= s.newSet.size {
		return cause
	}
	return machinefacts.True(v1alpha1.ReasonMachinesNotAvailable,
		fmt.Sprintf("New MachineSet %s has %d of %d machines; see its conditions and Events",
			s.newSet.set.Name, s.standing(s.newSet), s.newSet.size))
}

// findInvalid finds an old MachineSet that is not reconciled because its spec or its intents are
// invalid. The user corrects what its condition Valid names.
func (s stalls) findInvalid() (cause machinefacts.Condition) {
	for _, t := range s.old {
		c := machinefacts.ConditionOfSet(&t.set.Status, v1alpha1.MachineSetValid)
		if c.Status == corev1.ConditionFalse && c.Reason != v1alpha1.ReasonInvalidClass && !t.isEmpty() {
			return machinefacts.True(v1alpha1.ReasonMachinesNotDeleted,
				fmt.Sprintf("Old MachineSet %s is invalid and not reconciled: %s", t.set.Name, c.Message))
		}
	}
	return cause
}

// findHeld finds an old MachineSet that deletes no machines because deletions are held. The user
// removes the annotation when its reason is gone.
func (s stalls) findHeld() (cause machinefacts.Condition) {
	for _, t := range s.old {
		if c := machinefacts.ConditionOfSet(&t.set.Status, v1alpha1.MachineSetDeletionsHeld); c.IsTrue() {
			return machinefacts.True(c.Reason, fmt.Sprintf("Old MachineSet %s: %s", t.set.Name, c.Message))
		}
	}
	return cause
}

// findNotDeleted finds an old MachineSet that has more machines than its replicas, has observed
// them, and deletes none. The user reads its conditions and Events.
func (s stalls) findNotDeleted() (cause machinefacts.Condition) {
	for _, t := range s.old {
		if n := s.standing(t); n > t.set.Spec.Replicas && t.set.Generation == t.set.Status.ObservedGeneration {
			return machinefacts.True(v1alpha1.ReasonMachinesNotDeleted,
				fmt.Sprintf("Old MachineSet %s has %d machines, its spec has %d, and none of them is being deleted; see its conditions and Events",
					t.set.Name, n, t.set.Spec.Replicas))
		}
	}
	return cause
}

// findUncached finds machines of old MachineSets that the API server has and the cache does not:
// their slot label is missing or wrong, or they were deleted a moment ago. The user waits, since
// slot labels are corrected automatically.
func (s stalls) findUncached() (cause machinefacts.Condition) {
	n := s.uncached()
	if n == 0 {
		return cause
	}
	return machinefacts.True(v1alpha1.ReasonMachinesNotDeleted, fmt.Sprintf(
		"Old MachineSets have machines that are not in the cache: %d; their label %s is missing or wrong and is being corrected, "+
			"or they were deleted a moment ago",
		n, v1alpha1.LabelSlot))
}

// findUpdating finds a machine that is being updated in place. The user follows the stage that the
// message has, mostly to the drain of the Node or to the agent on it.
func (s stalls) findUpdating() (cause machinefacts.Condition) {
	if !s.updatesInPlace() {
		return cause
	}
	m := s.firstOfAny(func(m *v1alpha1.Machine) bool { return isUpdating(s.d, s.w.Nodes, m) })
	if m == nil {
		return cause
	}
	return machinefacts.True(v1alpha1.ReasonMachinesUpdating,
		fmt.Sprintf("Machine %s is being updated in place: %s", m.Name, howFar(nodeOf(s.w.Nodes, m))))
}

// findNotSelected finds Nodes that wait for a selection where the orchestration type is Manual. The
// user adds the label.
func (s stalls) findNotSelected() (cause machinefacts.Condition) {
	if !s.updatesInPlace() || !isManual(s.d) {
		return cause
	}
	n := inPlaceUpdates(s).waiting()
	if n == 0 {
		return cause
	}
	return machinefacts.True(v1alpha1.ReasonNodesNotSelected,
		fmt.Sprintf("Nodes that wait for their in-place update: %d; select them with the label %s=true", n, v1alpha1.LabelSelectedForUpdate))
}

// findNotSelectable finds an old machine whose Node cannot be selected for its update. The user has
// the machine become available, and its Node have the condition InPlaceUpdate.
func (s stalls) findNotSelectable() (cause machinefacts.Condition) {
	if !s.updatesInPlace() {
		return cause
	}
	for _, t := range s.old {
		if m := s.first(t, func(m *v1alpha1.Machine) bool { return !inPlaceUpdates(s).mayBeSelected(t, m) }); m != nil {
			return machinefacts.True(v1alpha1.ReasonMachinesNotAvailable, fmt.Sprintf(
				"Old machine %s cannot be updated in place, its phase is %q; it has to be available, and its Node has to have the condition %s; "+
					"see its lastOperation",
				m.Name, m.Status.CurrentStatus.Phase, v1alpha1.NodeInPlaceUpdate))
		}
	}
	return cause
}

// updatesInPlace reports whether old machines remain that are updated in place to the template of a
// new MachineSet.
func (s *sets) updatesInPlace() bool { return s.inPlace && s.newSet != nil && s.isUnderWay() }

// firstUnavailable returns the first machine of the new MachineSet, by name, that is not available
// and not being deleted.
func (s stalls) firstUnavailable() *v1alpha1.Machine {
	return s.first(s.newSet, func(m *v1alpha1.Machine) bool {
		available, _ := s.availableIn(s.newSet.set, m)
		return !available && m.DeletionTimestamp == nil
	})
}
