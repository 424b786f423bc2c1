// Package overshoot freezes MachineSets that create machines beyond their size, and ends such
// freezes. The leader runs it; controllers/overshoot/decide decides.
//
// Guarantees:
//
//   - Nothing is decided on a cache, nor on a list that was not read to its end.
//   - Writes are those of the leader: they end with the leadership, and carry the UID and
//     resourceVersion of the object that was read.
//   - A new leadership begins without a count, so that two counts are always those of one process.
//
// Not guaranteed: that a set is frozen before the second count that shows that it overshoots, one
// period later.
package overshoot
