// Package drainer carries out drains of Nodes: it sends all requests that drain decides on, except writes of the Node, and has what
// this process knows of each drain.
//
// A controller continues a drain in a pass over the drain's owner, with what that pass knows of owner and Node, and receives a verdict.
// Between two passes the drainer watches what the drain waits for, and wakes the owner. A process has one Drainer: it counts the volumes that move for all drains of a
// target cluster, so that a cloud does not have to detach too many at the same time.
//
// Guarantees: no call waits for a pod to leave or for a volume to be detached; a pod, a PodDisruptionBudget or an attachment is only
// changed or deleted with the UID that was decided on; a drain that waits is woken after each change that can affect it; after a drain
// has ended, nothing is watched or counted for it.
// Not guaranteed: that a drain is remembered. Another process continues it with what the target cluster shows.
package drainer
