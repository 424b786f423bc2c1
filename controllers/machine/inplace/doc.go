// Package inplace decides what a Node carries while it is updated in place: its VM stays, and an
// agent on it does the update. It is pure: Decide is a function from Node, machine and time to the
// Node to be written.
//
// Labels on the Node are requests: the controllers of MachineDeployments, or a user, set them, and
// the agent sets the result. The condition InPlaceUpdate is the response: its reason is the stage
// that the Node has reached, and its time of transition is the start of that stage. Only the
// machine controller writes it.
//
//	stage               follows when
//	CandidateForUpdate  the Node is a candidate and has no result
//	SelectedForUpdate   it is selected. It is cordoned and drained, and its drain timeout starts
//	DrainSuccessful     the drain has ended, normally or by force
//	ReadyForUpdate      the machine has the phase InPlaceUpdating. The agent may begin
//	UpdateSuccessful    the result is successful
//	UpdateFailed        the result is failed
//
// When the machine runs again and has left its old MachineSet, the update is over: labels and
// cordon are removed, and the Node waits for its critical components like a new one.
// UpdateSuccessful stays until the Node is a candidate again. A Node that is no candidate any more
// before its update has begun loses the condition.
//
// The progress can be read from the objects, so that another holder of the machine continues from
// there:
//
//   - A Node with the reason DrainSuccessful has been drained, and is not drained again.
//   - The machine is InPlaceUpdating before its Node is ready for the agent: so the update has a
//     deadline before it begins.
//   - The labels are removed when the condition has the result, and never before the machine has
//     left its old set, which depends on the labels.
//
// A selection that is withdrawn before the machine is InPlaceUpdating ends the drain and the
// cordon. Afterwards the agent may be working, and only a result or the timeout ends the update.
// The timeout sets the result failed. A failed update is tried again when its result is removed
// from the Node.
//
// Not guaranteed: that a cordon was set by the fleet. Machine Controller Manager does not check
// that either.
package inplace
