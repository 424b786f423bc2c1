package inplace

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machinefacts"
)

// World is what the decision rests on. Everything in it is read only.
type World struct {
	Now time.Time
	// Machine as it stands, or as it is about to be written.
	Machine *v1alpha1.Machine
	// Node of the machine. It is claimed.
	Node *corev1.Node
	// InOldSet says that the machine's MachineSet is one that updated machines leave, or is not seen.
	InOldSet bool
	// NoComponentsTaint has a Node that was updated go without the taint critical-components-not-ready.
	NoComponentsTaint bool
	// Drained says how the drain of the Node has ended, for people; "" while it has not.
	Drained string
}

// Verdict is a decision.
type Verdict struct {
	// Node as it should stand. The decision is taken anew after each write of its metadata and spec, or its status.
	Node *corev1.Node
	// Drain says that the Node has to be drained now.
	Drain bool
}

// Decide says what the Node should carry. It is total, and on what it says it says the same again.
func Decide(w World) Verdict {
	is := machinefacts.InPlaceStage(w.Node)
	if !takesPart(w.Machine) || is == "" && !machinefacts.IsInPlaceCandidate(w.Node) {
		return Verdict{Node: w.Node}
	}
	n := w.Node.DeepCopy()
	stage, message := next(w, is)
	if stage != is || stage == v1alpha1.NodeReasonUpdateFailed {
		setStage(w, n, stage, message)
	}
	switch {
	case isTakenBack(w, is):
		machinefacts.Uncordon(n)
	case isOver(w, is):
		machinefacts.EndInPlaceUpdate(n, !w.NoComponentsTaint)
	}
	return Verdict{Node: n, Drain: stage == v1alpha1.NodeReasonSelectedForUpdate}
}

// takesPart says that the machine has run and is not given up.
func takesPart(m *v1alpha1.Machine) bool {
	switch m.Status.CurrentStatus.Phase { //nolint:exhaustive // all others have no Node that works, or are given up
	case v1alpha1.MachineRunning, v1alpha1.MachineUnknown, v1alpha1.MachineInPlaceUpdating, v1alpha1.MachineInPlaceUpdateSuccessful,
		v1alpha1.MachineInPlaceUpdateFailed:
		return true
	}
	return false
}

// SelectedAt is since when the Node is to be drained, if it is.
func SelectedAt(n *corev1.Node) time.Time {
	if c := machinefacts.InPlaceCondition(n); c != nil {
		return c.LastTransitionTime.Time
	}
	return time.Time{}
}

// Result is what the agent says of an update that was asked for; "" when it says nothing, or nothing that is known.
func Result(n *corev1.Node) string {
	result := n.Labels[v1alpha1.LabelUpdateResult]
	if (result == v1alpha1.UpdateResultSuccessful || result == v1alpha1.UpdateResultFailed) && (machinefacts.IsInPlaceCandidate(n) || machinefacts.InPlaceStage(n) != "") {
		return result
	}
	return ""
}

// IsDrained says that the Node was drained for its update, is wanted for it still, and has no result yet.
func IsDrained(n *corev1.Node) bool {
	return machinefacts.InPlaceStage(n) == v1alpha1.NodeReasonDrainSuccessful && machinefacts.IsInPlaceSelected(n) && Result(n) == ""
}

// IsShut says that the Node is to get no pods: it is emptied for an update, or the update is not over.
func IsShut(n *corev1.Node) bool {
	switch machinefacts.InPlaceStage(n) {
	case v1alpha1.NodeReasonSelectedForUpdate, v1alpha1.NodeReasonDrainSuccessful, v1alpha1.NodeReasonReadyForUpdate, v1alpha1.NodeReasonUpdateFailed:
		return true
	}
	return Result(n) != ""
}

// IsUnfinished says that the agent was told to begin and has not succeeded, or says that it cannot.
func IsUnfinished(n *corev1.Node) bool {
	result := Result(n)
	return result == v1alpha1.UpdateResultFailed || result == "" && machinefacts.InPlaceStage(n) == v1alpha1.NodeReasonReadyForUpdate
}

// hasBegun says that the agent was told to begin, or is about to be.
func hasBegun(w World) bool {
	return w.Machine.Status.CurrentStatus.Phase == v1alpha1.MachineInPlaceUpdating
}

// next returns the stage that the Node has reached, and what there is to say of it.
func next(w World, is string) (stage, message string) {
	switch Result(w.Node) {
	case v1alpha1.UpdateResultSuccessful:
		return v1alpha1.NodeReasonUpdateSuccessful, "The Node was updated in place."
	case v1alpha1.UpdateResultFailed:
		return v1alpha1.NodeReasonUpdateFailed, "The Node could not be updated in place" + WhyFailed(w.Node) + "."
	}
	switch {
	case isTakenBack(w, is):
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

// isIdle says that nothing goes on: no update was asked for, or the last one has ended and its result was taken away.
func isIdle(stage string) bool {
	return stage == "" || stage == v1alpha1.NodeReasonUpdateSuccessful || stage == v1alpha1.NodeReasonUpdateFailed
}

// isTakenBack says that somebody wants the Node not to be updated now, and that this is possible still.
func isTakenBack(w World, is string) bool {
	isOnItsWay := is == v1alpha1.NodeReasonSelectedForUpdate || is == v1alpha1.NodeReasonDrainSuccessful
	return isOnItsWay && !machinefacts.IsInPlaceSelected(w.Node) && !hasBegun(w) && Result(w.Node) == ""
}

// isOver says that the update has succeeded and that nobody needs its traces any more.
func isOver(w World, is string) bool {
	return is == v1alpha1.NodeReasonUpdateSuccessful && Result(w.Node) == v1alpha1.UpdateResultSuccessful &&
		w.Machine.Status.CurrentStatus.Phase == v1alpha1.MachineRunning && !w.InOldSet
}

// WhyFailed is what the agent says of a failure, to follow other words; "" when it says nothing.
func WhyFailed(n *corev1.Node) string {
	if why := n.Annotations[v1alpha1.AnnotationUpdateFailedReason]; why != "" {
		return ": " + why
	}
	return ""
}

// setStage says on the Node how far it is. The time of transition is that of the stage: the status is always True.
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

// Reported is what the condition says for people; "" without one.
func Reported(n *corev1.Node) string {
	if c := machinefacts.InPlaceCondition(n); c != nil {
		return c.Message
	}
	return ""
}
