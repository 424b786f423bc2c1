package drain

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	storagev1 "k8s.io/api/storage/v1"
)

// Action is one action of a drain.
type Action string

// The actions.
const (
	// Rest means that nothing is to be done before an event arrives, or Verdict.Wake is over; or that
	// the drain has ended.
	Rest Action = "Rest"
	// Cordon marks the Node as unschedulable. The pods that were read before are not live any more.
	Cordon Action = "Cordon"
	// List reads the Node's pods without a cache.
	List Action = "List"
	// Watch begins to watch what the drain depends on.
	Watch Action = "Watch"
	// RequestRecount writes to budgets that their status is older than their spec, so that the
	// disruption controller counts them again. Until then they allow no eviction. Those for which that
	// failed are recorded with Memory.Unmarked.
	RequestRecount Action = "RequestRecount"
	// Remove removes pods and attachments, in the given order.
	Remove Action = "Remove"
)

// How is the way in which a pod is removed.
type How string

// The values.
const (
	// Evict uses the eviction API, which checks the pod's budget.
	Evict How = "Evict"
	// Take takes a disruption from each of several budgets, which the eviction API cannot do, and
	// deletes the pod.
	Take How = "Take"
	// Delete deletes the pod without grace.
	Delete How = "Delete"
)

// Removal is a pod to remove.
type Removal struct {
	Pod *corev1.Pod
	How How
	// Budgets from each of which a disruption is to be taken, with Take.
	Budgets []*policyv1.PodDisruptionBudget
	// Moves is how many volumes begin to move with the pod.
	Moves int
}

// State is the state of a drain.
type State int

// The states. Unknown is the zero value: nothing was read yet.
const (
	Unknown State = iota
	// Draining means that pods or volumes still have to leave.
	Draining
	// Drained means that all have left, and that their volumes are detached.
	Drained
	// GivenUp means that the drain has ended without that.
	GivenUp
)

// Ended reports whether the VM may be deleted.
func (s State) Ended() bool { return s == Drained || s == GivenUp }

// Verdict is the result of a decision.
type Verdict struct {
	Do Action
	// Pods to remove, the most important first.
	Pods []Removal
	// Budgets to recount.
	Budgets []*policyv1.PodDisruptionBudget
	// Attachments to delete.
	Attachments []*storagev1.VolumeAttachment
	// Wake is when to decide again at the latest; 0 means when an event arrives.
	Wake time.Duration
	// Moving is how many volumes of the Node are moving.
	Moving int
	// State of the drain, with Rest.
	State State
	// Cause of the force, when the drain is forced or was given up; else "".
	Cause Cause
	// Progress for messages.
	Progress Progress
	// Memory for the next decision, without the attempts that follow from this verdict.
	Memory Memory
}

// with returns the verdict while so many volumes of the Node move.
func (v Verdict) with(moving int) Verdict {
	v.Moving = moving
	return v
}

// do returns an action.
func do(action Action) Verdict { return Verdict{Do: action, State: Draining} }
