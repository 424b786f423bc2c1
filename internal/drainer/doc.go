// Package drainer carries out drains of Nodes: it sends all requests that drain decides on, except
// writes of the Node, and has what this process knows of each drain.
//
// A controller continues a drain in a pass over the drain's owner, with what that pass knows of
// owner and Node, and receives a verdict. Between two passes the drainer watches what the drain
// waits for, and wakes the owner. A process has one Drainer: it counts the volumes that move for
// all drains of a target cluster, so that a cloud does not have to detach too many at the same
// time.
//
// Guarantees: no call waits for a pod to leave or for a volume to be detached; a pod, a
// PodDisruptionBudget or an attachment is only changed or deleted with the UID that was decided on;
// a drain that waits is woken after each change that can affect it; after a drain has ended,
// nothing is watched or counted for it. Not guaranteed: that a drain is remembered. Another process
// continues it with what the target cluster shows.
//
// Its watches cache the objects that drains depend on, while there are drains: the pods of a Node
// while that Node is drained, and the budgets, claims, volumes, attachments and CSI drivers of a
// target cluster while any Node there is, and for 10 min after that.
//
// Guarantees: the objects that a watchSession returns come from consistent reads that began after
// it, and are complete before it returns any; a drain is woken after each change that can affect
// it, also when a kind can no longer be watched, and when it can again; nothing is cached or
// watched of a cluster that has had no drain for 10 min. Not guaranteed: that a watch is up to
// date. A caller that acts on a missing object reads it first.
package drainer
