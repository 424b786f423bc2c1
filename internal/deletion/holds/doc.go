// Package holds decides whether deletions of machines are held in a namespace, by the annotation
// fleet.machine.sapcloud.io/hold-deletions of the Namespace or of the fleet's leader Lease.
//
// Guarantees:
//
//   - While it is not known whether a Namespace or the leader Lease has the annotation, deletions are held: before either was read, without the right
//     to read Namespaces, and while there is no leader Lease.
//   - A change is reported as soon as a watch shows it.
//
// Not guaranteed: that another replica has seen the annotation at the same moment.
package holds
