// Package ready says which machines are available. It is pure.
//
// Guarantees: a machine that is being deleted is not available, whatever its status says still.
package ready
