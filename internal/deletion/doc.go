// Package deletion has what all deletions of the fleet share: the requests and their receipts, and
// whether deletions are held or limited in a namespace. Package receipt is its pure core.
//
// A Recorder sends the requests that delete Machines, Nodes and resources at clouds, and records a
// receipt of each: as an Event, as a line of the log, as a metric and, if it is enabled, as a line
// of the deletion log.
//
// Guarantees:
//
//   - A request that was accepted, or that may have taken effect without an answer, has a receipt.
//     One that was rejected has none.
//   - A receipt that cannot be written to the deletion log is logged and counted; the deletion
//     continues.
//   - A line of the deletion log is appended in one write. Receipts of concurrent deletions do not
//     mix.
//
// Not guaranteed: a receipt of a request after which the process was terminated at once. The
// receipt of the VM, which the next holder of the slot deletes, has the same reason.
//
// Holds decide whether deletions of machines are held in a namespace, by the annotation
// fleet.machine.sapcloud.io/hold-deletions of the Namespace or of the fleet's leader Lease.
//
// Guarantees:
//
//   - While it is not known whether a Namespace or the leader Lease has the annotation, deletions
//     are held: before either was read, without the right to read Namespaces, and while there is no
//     leader Lease.
//   - A change is reported as soon as a watch shows it.
//
// Not guaranteed: that another replica has seen the annotation at the same moment.
//
// A Budget limits how many machines of a namespace are replaced for their health, and orphans of it
// deleted, within an hour. The Namespace's annotation
// fleet.machine.sapcloud.io/max-deletions-per-hour has the limit, else the fleet's setting.
//
// A deletion is reserved before it begins, on a Lease in the namespace that is written under its
// resourceVersion. So all replicas share one budget, and it survives their restarts, hand-overs and
// other leaders.
//
// Guarantees:
//
//   - However many replicas reserve at the same time, there are no more reservations than the
//     limit.
//   - Nothing is reserved where the Lease cannot be read, decoded or written, or while the
//     annotations of Namespaces are not known.
//   - Where nothing is limited, no request is sent.
//
// Not guaranteed: the count of what was reserved since a backup, when the Lease is restored from
// it, or deleted; and an exact hour where the clocks of replicas differ.
package deletion
