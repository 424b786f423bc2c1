// Package leases does the I/O of package membership: the Leases of the fleet at an API server, the
// file lock that proves the end of an earlier process of the same pod, and the watchdog that ends
// this one.
//
// Guarantees:
//
//   - Store sends each request when it is called, bounds it in time, and reports its outcome
//     without guessing: a request without a clear answer is unanswered.
//   - An update carries UID and resourceVersion. There is no patch and no delete.
//   - The Leases have their own connections, which are closed after every failed attempt, so that
//     neither the load of the fleet nor a dead connection delays the next renewal.
//   - Every list that a watch starts from is consistent, and a watch that shows nothing is
//     replaced.
//
// Not guaranteed: that an unanswered request has no effect later.
package leases
