// Package candidates decides which Nodes of a MachineConfigPool are assigned the pool's target
// next, and what the pool's status is. It is pure.
//
//   - Members: which Node belongs to which pool. A Node belongs to one pool at most.
//   - Decide: assignments, answers to requests for drains, taints, counts and conditions of one
//     pool.
//
// # The rules
//
// A Node serves while it is available to pods (Ready, without pressure, not cordoned) and its
// daemon is done with what it was assigned. All other Nodes count against maxUnavailable, as do
// machines that have no Node yet. As many serving Nodes are assigned a new target as keeps the sum
// within it: zone by zone, the oldest first.
//
// A Node that counts already is assigned the target without regard for maxUnavailable when its
// daemon is at work on another target, has failed with it, or reports drift; and when it is done
// with a target that was abandoned, and not Ready. So a roll-back reaches the Nodes that the bad
// configuration has broken. All other Nodes that do not serve are left alone: a Node that is
// cordoned or not Ready while its daemon is done is in the hands of another party. A Node that has
// booted with the target is assigned it at once: nothing happens on it.
//
// # Drains
//
// A daemon requests a drain before a reboot, and the end of the cordon after it. A drain is carried
// out for a member that was assigned the configuration, if that is the target or was one. It begins
// while fewer Nodes than maxUnavailable are not available to pods, or on a Node that is not
// available itself; what has begun is continued. The end of the cordon is answered when the Node
// has what it was assigned, and when the node lifecycle controller has removed its taints from a
// Node that is Ready, for which it has some seconds.
//
// # Guarantees
//
// Assignments never raise the number of Nodes that do not serve above maxUnavailable. Equal worlds
// have equal verdicts, regardless of order Nodes are passed. A Node that is neither on the target
// nor assigned it is in a message with the cause.
//
// A drain that begins never raises the number of Nodes that are not available to pods above
// maxUnavailable, regardless of what the annotations of Nodes say: a kubelet can write those of its
// own Node.
//
// Not guaranteed: that a Node which reports to be done is.
package candidates
