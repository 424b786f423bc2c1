// Package ready says which machines of a set are available, how many are still to come, whether any may, and when to
// look again. It is pure.
//
// Guarantees: a machine that is being deleted is not available, whatever its status says still; a machine that a set has decided
// to make is coming until it is seen, whatever size the set has got since.
package ready
