// Package orphans deletes VMs and other resources at a cloud that were created for a Machine and
// belong to none any more. The leader runs it; controllers/orphans/decide decides.
//
// The unit of a sweep of orphans is a namespace, so that neither the account nor the objects of one
// tenant can affect another. Its MachineClasses are grouped by provider and scope, and each scope
// is listed once, with the first class by name, on which the suspicions of the scope are recorded.
// Namespaces are swept one after the other, spread over the period.
//
// Guarantees:
//
//   - Nothing is decided on a cache, nor on a list that was not read to its end: such a list
//     suspects nothing, confirms nothing, and ends no suspicion.
//   - Writes and deletions are those of the leader: they end with the leadership. Writes carry the
//     UID and resourceVersion of the object that was read.
//   - All that a deletion is based on was read from the API servers and the cloud in the sweep that
//     deletes.
//   - A deletion is reserved before it is requested, so that no sequence of leaders deletes more
//     than the limit of an hour.
//   - A sweep takes a bounded time, and has a bounded number of suspects in memory, regardless of
//     what clouds and target clusters answer, so that other namespaces wait for a bounded time. The
//     scopes of a namespace take turns.
//   - The target cluster of the namespace is opened for the sweep, also where another replica
//     serves the namespace. If it is not available the VMs that may have a Node are held.
//   - A suspect that was not confirmed in time counts for the limit as an orphan, and nothing of
//     its scope is approved meanwhile.
//   - Nothing is deleted in a namespace that another manager serves, that has a Machine whose
//     MachineClass does not exist, or a Machine whose VM is not known because it cannot be decoded.
//
// Not guaranteed: that a resource is found whose class and credentials do not exist any more, or
// whose cloud does not tag resources with the UID of the Machine and the ID of the control cluster.
package orphans
