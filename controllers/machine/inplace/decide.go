package inplace

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/machinefacts"
)

// World is the input of the decision. All of it is read only.
type World struct {
	Now time.Time
	// Machine in its current state, or as it is about to be written.
	Machine *v1alpha1.Machine
	// Node of the machine. It is claimed.
	Node *corev1.Node
	// InOldSet reports whether the machine's MachineSet is one that updated machines leave, or is not
	// seen.
	InOldSet bool
	// NoComponentsTaint omits the taint critical-components-not-ready from a Node that was updated.
	NoComponentsTaint bool
	// Drained is the text on how the drain of the Node has ended; "" while it has not.
	Drained string
}

// Verdict is the result of a decision.
type Verdict struct {
	// Node to be written. Decide is called again after each write of its metadata and spec, or its
	// status.
	Node *corev1.Node
	// Drain reports whether the Node has to be drained now.
	Drain bool
}

// Decide returns the Node to be written. It is total, and idempotent.
func Decide(w World) Verdict {
	is := machinefacts.InPlaceStage(w.Node)
	if !takesPart(w.Machine) || is == "" && !machinefacts.IsInPlaceCandidate(w.Node) {
		return Verdict{Node: w.Node}
	}
	n := w.Node.DeepCopy()
	stage, message := next(w, is)
	switch {
	case stage == v1alpha1.NodeReasonCandidateForUpdate && !machinefacts.IsInPlaceCandidate(n): // the request was taken back
		n.Status.Conditions = slices.DeleteFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
			return c.Type == v1alpha1.NodeInPlaceUpdate
		})
	case stage != is || stage == v1alpha1.NodeReasonUpdateFailed:
		setStage(w, n, stage, message)
	}
	switch {
	case isWithdrawn(w, is):
		machinefacts.Uncordon(n)
	case isOver(w, is):
		machinefacts.EndInPlaceUpdate(n, !w.NoComponentsTaint)
	case isTimedOut(w, is):
		metav1.SetMetaDataLabel(&n.ObjectMeta, v1alpha1.LabelUpdateResult, v1alpha1.UpdateResultFailed)
		metav1.SetMetaDataAnnotation(&n.ObjectMeta, v1alpha1.AnnotationUpdateFailedReason, noResult)
	}
	if is == v1alpha1.NodeReasonUpdateFailed && stage != is && n.Annotations[v1alpha1.AnnotationUpdateFailedReason] == noResult {
		delete(n.Annotations, v1alpha1.AnnotationUpdateFailedReason) // it is not the reason of what comes
	}
	return Verdict{Node: n, Drain: stage == v1alpha1.NodeReasonSelectedForUpdate}
}

// takesPart reports whether the machine has run and is not given up.
func takesPart(m *v1alpha1.Machine) bool {
	switch m.Status.CurrentStatus.Phase { //nolint:exhaustive // all others have no working Node, or have failed
	case v1alpha1.MachineRunning, v1alpha1.MachineUnknown, v1alpha1.MachineInPlaceUpdating, v1alpha1.MachineInPlaceUpdateSuccessful,
		v1alpha1.MachineInPlaceUpdateFailed:
		return true
	}
	return false
}

// SelectedAt returns since when the Node has been selected and has to be drained; the zero time if
// it was not.
func SelectedAt(n *corev1.Node) time.Time {
	if c := machinefacts.InPlaceCondition(n); c != nil {
		return c.LastTransitionTime.Time
	}
	return time.Time{}
}

// Result returns the result of an update that the agent has reported; "" if it has reported none,
// or an unknown one.
func Result(n *corev1.Node) string {
	result := n.Labels[v1alpha1.LabelUpdateResult]
	if (result == v1alpha1.UpdateResultSuccessful || result == v1alpha1.UpdateResultFailed) &&
		(machinefacts.IsInPlaceCandidate(n) || machinefacts.InPlaceStage(n) != "") {
		return result
	}
	return ""
}

// IsDrained reports whether the Node was drained for its update, is still to be updated, and has no
// result yet.
func IsDrained(n *corev1.Node) bool {
	return machinefacts.InPlaceStage(n) == v1alpha1.NodeReasonDrainSuccessful && machinefacts.IsInPlaceSelected(n) && Result(n) == ""
}

// IsShut reports whether the Node must get no pods: it is drained for an update, or the update is
// not over.
func IsShut(n *corev1.Node) bool {
	switch machinefacts.InPlaceStage(n) {
	case v1alpha1.NodeReasonSelectedForUpdate, v1alpha1.NodeReasonDrainSuccessful, v1alpha1.NodeReasonReadyForUpdate,
		v1alpha1.NodeReasonUpdateFailed:
		return true
	}
	return Result(n) != ""
}

// IsUnfinished reports whether the agent may have begun and has not succeeded, or has reported a
// failure.
func IsUnfinished(n *corev1.Node) bool {
	result := Result(n)
	return result == v1alpha1.UpdateResultFailed || result == "" && machinefacts.InPlaceStage(n) == v1alpha1.NodeReasonReadyForUpdate
}

// hasBegun reports whether the agent was requested to begin, or is about to be.
func hasBegun(w World) bool {
	return w.Machine.Status.CurrentStatus.Phase == v1alpha1.MachineInPlaceUpdating
}

// next returns the stage that the Node has reached, and its message.
func next(w World, is string) (stage, message string) {
	switch Result(w.Node) {
	case v1alpha1.UpdateResultSuccessful:
		return v1alpha1.NodeReasonUpdateSuccessful, "The Node was updated in place."
	case v1alpha1.UpdateResultFailed:
		return v1alpha1.NodeReasonUpdateFailed, "The Node could not be updated in place" + WhyFailed(w.Node) + "."
	}
	switch {
	case isWithdrawn(w, is):
		return v1alpha1.NodeReasonCandidateForUpdate, "The Node is not selected any more to be updated in place."
	case isIdle(is) && machinefacts.IsInPlaceCandidate(w.Node):
		is, message = v1alpha1.NodeReasonCandidateForUpdate, "The Node is to be updated in place when it is selected."
	}
	switch {
	case (is == v1alpha1.NodeReasonSelectedForUpdate || is == v1alpha1.NodeReasonDrainSuccessful) && hasBegun(w):
		return v1alpha1.NodeReasonReadyForUpdate, "The Node is drained and may be updated."
	case is == v1alpha1.NodeReasonSelectedForUpdate && w.Drained != "":
		return v1alpha1.NodeReasonDrainSuccessful, w.Drained + "."
	case is == v1alpha1.NodeReasonCandidateForUpdate && machinefacts.IsInPlaceSelected(w.Node):
		return v1alpha1.NodeReasonSelectedForUpdate, "The Node is selected to be updated in place, and is drained."
	}
	return is, message
}

// isIdle reports whether no update is in progress: none was requested, or the last one has ended
// and its result was removed.
func isIdle(stage string) bool {
	return stage == "" || stage == v1alpha1.NodeReasonUpdateSuccessful || stage == v1alpha1.NodeReasonUpdateFailed
}

// isWithdrawn reports whether the update was withdrawn while that is still possible.
func isWithdrawn(w World, is string) bool {
	isOnItsWay := is == v1alpha1.NodeReasonSelectedForUpdate || is == v1alpha1.NodeReasonDrainSuccessful
	return isOnItsWay && !machinefacts.IsInPlaceSelected(w.Node) && !hasBegun(w) && Result(w.Node) == ""
}

// isOver reports whether the update has succeeded and its labels are no longer needed.
func isOver(w World, is string) bool {
	return is == v1alpha1.NodeReasonUpdateSuccessful && Result(w.Node) == v1alpha1.UpdateResultSuccessful &&
		w.Machine.Status.CurrentStatus.Phase == v1alpha1.MachineRunning && !w.InOldSet
}

// noResult is the reason of a failure that no agent has reported.
const noResult = "the agent has reported no result within the timeout"

// isTimedOut reports whether the agent has reported no result in time. The failure is recorded on
// the Node like one that it reports, so that it is tried again in the same way; an agent that is
// late may replace it.
func isTimedOut(w World, is string) bool {
	return is == v1alpha1.NodeReasonReadyForUpdate && Result(w.Node) == "" &&
		w.Machine.Status.CurrentStatus.Phase == v1alpha1.MachineInPlaceUpdateFailed
}

// WhyFailed returns the agent's reason for a failure, to be appended to a sentence; "" if there is
// none.
func WhyFailed(n *corev1.Node) string {
	if why := n.Annotations[v1alpha1.AnnotationUpdateFailedReason]; why != "" {
		return ": " + why
	}
	return ""
}

// setStage sets the stage in the Node's condition. The time of transition is that of the stage: the
// status is always True.
func setStage(w World, n *corev1.Node, stage, message string) {
	now := metav1.NewTime(w.Now)
	next := corev1.NodeCondition{
		Type: v1alpha1.NodeInPlaceUpdate, Status: corev1.ConditionTrue, Reason: stage, Message: message,
		LastHeartbeatTime: now, LastTransitionTime: now,
	}
	was := machinefacts.InPlaceCondition(n)
	switch {
	case was == nil:
		n.Status.Conditions = append(n.Status.Conditions, next)
	case was.Reason == stage && was.Message == message:
	default:
		if was.Reason == stage {
			next.LastTransitionTime = was.LastTransitionTime
		}
		*was = next
	}
}

// Reported returns the message of the condition; "" without one.
func Reported(n *corev1.Node) string {
	if c := machinefacts.InPlaceCondition(n); c != nil {
		return c.Message
	}
	return ""
}
