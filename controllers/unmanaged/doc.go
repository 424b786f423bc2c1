// Package unmanaged annotates Nodes that have no machine, and removes the fleet's finalizer from
// them; controllers/unmanaged/decide decides which Nodes these are. The leader searches the target
// cluster that all namespaces have, and the owner of a namespace the one that only that has.
//
// Guarantees:
//
//   - A search reads all machines before the Nodes; one that does not read both to their end
//     changes nothing about since when a Node has been without a machine.
//   - A Node is annotated after this process has seen it without a machine for the timeout, by its
//     own clock.
//   - Writes are those of the leader or owner: they end with that, and carry the UID and
//     resourceVersion of the Node that was read.
//
// Not guaranteed: that each Node without a machine is found. Where the fleet serves only some
// namespaces of a target cluster, a Node with its finalizer or the name of a machine may be another
// manager's, and is left alone; two namespaces may name the same cluster, too.
package unmanaged
