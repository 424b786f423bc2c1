// Package deletionlog sends the requests that delete Machines, Nodes and resources at clouds, and records a receipt of each: as an Event,
// as a line of the log, as a metric and, if it is enabled, as a line of the deletion log.
//
// Guarantees:
//
//   - A request that was accepted, or that may have taken effect without an answer, has a receipt. One that was rejected has none.
//   - A receipt that cannot be written to the deletion log is logged and counted; the deletion continues.
//   - A line of the deletion log is appended in one write. Receipts of concurrent deletions do not mix.
//
// Not guaranteed: a receipt of a request after which the process was terminated at once. The receipt of the VM, which the next holder
// of the slot deletes, has the same reason.
package deletionlog
