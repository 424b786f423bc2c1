// Package safety has the leader's sweep of orphans: VMs and other resources at a cloud that were made for a Machine and belong to none
// any more. controllers/safety/orphans decides; this package lists, reads, records and deletes.
//
// The unit of a sweep is a namespace, so that neither the account nor the objects of one tenant can affect another. Its MachineClasses are
// grouped by provider and scope, and each scope is listed once, with the first class by name, on which the suspicions of the scope are
// recorded. Namespaces are swept one after the other, spread over the period.
//
// Guarantees:
//
//   - All that a deletion is based on was read from the API servers and the cloud in the sweep that deletes, and not from a cache. A read
//     that fails, and a list of which a page fails, suspects nothing, confirms nothing, and ends no suspicion.
//   - A deletion is reserved before it is requested, so that no sequence of leaders deletes more than the limit of an hour.
//   - Nothing is deleted in a namespace that another manager serves, that has a Machine whose MachineClass does not exist, or a Machine
//     whose VM is not known because it cannot be decoded.
//   - All writes and deletions are made under the leadership in the context.
//
// Not guaranteed: that a resource is found whose class and credentials do not exist any more, or whose cloud does not tag resources with
// the UID of the Machine and the ID of the control cluster.
package safety
