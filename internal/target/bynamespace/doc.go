// Package bynamespace gives each namespace of the control cluster a target cluster, which Secrets
// of the namespace name.
//
// A target exists while it has users: machines of the namespace in this replica. It is opened with
// the first, and closed a while after the last. Each namespace has its own connection, cache and
// check, also where two name the same cluster: they may have different rights.
//
// Guarantees:
//
//   - Other credentials of the same server are used for the next request after the watch of the
//     Secret shows them; watches, caches and work in flight go on. Another server or CA is another
//     target: the earlier cache is emptied first.
//   - For returns a Cluster only while its API server proves to be the cluster that the namespace
//     had first, and after its Nodes were listed. A target whose Secret is missing or invalid, or
//     whose Nodes are not delivered, is not available; that concerns its namespace only.
//   - Requests are sent within the budget of the cluster. While those fail For says so.
//   - The Nodes that are cached of a target are bounded by the machines of its namespace. One with
//     more is not available.
//   - While a target is not available its Nodes are removed from the cache, after For has begun to
//     say so.
//
// Not guaranteed: that the credentials have the rights that controllers need.
package bynamespace
