// Package inplace decides what a Node carries while it is updated in place: its VM stays, and an agent on it does the update.
// It is pure: Decide is a function from Node, machine and time to the Node as it should stand.
//
// Labels on the Node ask: the controllers of MachineDeployments, or a user, set them, and the agent sets the result. The
// condition InPlaceUpdate answers: its reason is the stage that the Node has reached, and its time of transition is when it
// did. Only the machine controller writes it.
//
//	stage               follows when
//	CandidateForUpdate  the Node is a candidate and has no result
//	SelectedForUpdate   it is selected. It is cordoned and drained, and has its drain timeout from now on
//	DrainSuccessful     the drain has ended, in good or by force
//	ReadyForUpdate      the machine says that it is InPlaceUpdating. The agent may begin
//	UpdateSuccessful    the result is successful
//	UpdateFailed        the result is failed
//
// When the machine runs again and has left its old MachineSet, the update is over: labels and cordon go, and the Node waits
// for its critical components as a new one does. UpdateSuccessful stays until the Node is a candidate again.
//
// Each state of the objects tells how far it has come, so whoever goes on with a machine goes on there:
//
//   - A Node that says DrainSuccessful has been drained, and is not drained again.
//   - The machine is InPlaceUpdating before its Node is ready for the agent: so the update has a deadline before it begins.
//   - The labels go when the condition tells the result, and never before the machine has left its old set, which is done by
//     the labels.
//
// A selection that is taken back before the machine is InPlaceUpdating ends the drain and the cordon. Afterwards the agent may be at
// work, and only a result or the timeout ends it. A failed update is tried again when its result is taken off the Node.
//
// Not guaranteed: that a cordon was ours. Machine Controller Manager does not ask either.
package inplace
