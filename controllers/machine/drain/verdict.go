package drain

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	storagev1 "k8s.io/api/storage/v1"
)

// Action is one thing to do.
type Action string

// The actions.
const (
	// Rest means that nothing is to be done before something happens, or Verdict.Wake is over; or that the drain has ended.
	Rest Action = "Rest"
	// Cordon marks the Node as unschedulable. What was seen of its pods before is not live any more.
	Cordon Action = "Cordon"
	// List reads the Node's pods past all caches.
	List Action = "List"
	// Watch begins to watch what the drain depends on.
	Watch Action = "Watch"
	// Mark writes on budgets that their status is older than their spec, which has the disruption controller count anew.
	// Until it has, they let no pod go. Those that could not be marked go to Memory.Unmarked.
	Mark Action = "Mark"
	// Remove removes pods and attachments, in the order given.
	Remove Action = "Remove"
)

// How says how a pod is removed.
type How string

// The ways.
const (
	// Evict asks the eviction API, which asks the pod's budget.
	Evict How = "Evict"
	// Take takes a disruption from each of several budgets, which the eviction API cannot do, and deletes the pod.
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
	// Moves is how many volumes begin to move when the pod goes.
	Moves int
}

// State is how far a drain is.
type State int

// The states. Unknown is the zero value: nobody has looked yet.
const (
	Unknown State = iota
	// Draining means that something is still to leave.
	Draining
	// Drained means that all have left, and that their volumes are detached.
	Drained
	// GivenUp means that the drain has ended without that.
	GivenUp
)

// Ended says that the VM may go.
func (s State) Ended() bool { return s == Drained || s == GivenUp }

// Verdict is a decision.
type Verdict struct {
	Do Action
	// Pods to remove, the most important first.
	Pods []Removal
	// Budgets to mark.
	Budgets []*policyv1.PodDisruptionBudget
	// Attachments to delete.
	Attachments []*storagev1.VolumeAttachment
	// Wake is when to look again at the latest; 0 means when something happens.
	Wake time.Duration
	// Moving is how many volumes of the Node move already.
	Moving int
	// State of the drain, with Rest.
	State State
	// Cause of the force, when the drain is forced or was given up; else "".
	Cause Cause
	// Progress for people.
	Progress Progress
	// Memory to come with next time, with the attempts that follow from this verdict still to be noted.
	Memory Memory
}

// with returns the verdict while so many volumes of the Node move.
func (v Verdict) with(moving int) Verdict {
	v.Moving = moving
	return v
}

// do names an action.
func do(action Action) Verdict { return Verdict{Do: action, State: Draining} }
