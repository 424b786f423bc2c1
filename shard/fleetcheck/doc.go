// Package fleetcheck decides from the Leases of a fleet whether it works: a leader and enough sessions live and are fit, and each slot
// has a holder that lives. It is pure.
//
// A session lives if it has renewed its Lease between two lists. Nothing else is accepted as evidence: the clock that wrote the time
// on a Lease is not that of the reader.
//
// Not guaranteed: that the objects of each slot are reconciled. /readyz and the metrics of a replica report what it waits for.
package fleetcheck
