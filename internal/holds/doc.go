// Package holds decides whether deletions of machines are held in a namespace, by the annotation
// fleet.machine.sapcloud.io/hold-deletions of the Namespace or of the fleet's leader Lease.
//
// Guarantees:
//
//   - While it is not known whether a Namespace has the annotation, deletions in it are held.
//   - A change is reported as soon as a watch shows it.
//
// Not guaranteed: that another replica has seen the annotation at the same moment.
package holds
