// Package unmanaged annotates Nodes that have no machine, and removes the fleet's finalizer from
// them. The leader runs it; controllers/unmanaged/decide decides which Nodes these are.
//
// Guarantees:
//
//   - A search reads all machines before the Nodes; one that does not read both to their end
//     changes nothing about since when a Node has been without a machine.
//   - A Node is annotated after this leader has seen it without a machine for the timeout, by its
//     own clock.
//   - Writes are those of the leader: they end with the leadership, and carry the UID and
//     resourceVersion of the Node that was read.
//
// Not guaranteed: that each Node without a machine is found. Where the fleet serves only some
// namespaces, a Node with its finalizer or the name of a machine may be another manager's, and is
// left alone.
package unmanaged
