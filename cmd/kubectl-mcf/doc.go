// Command kubectl-mcf is the plugin "kubectl mcf": it shows what a fleet of machines does and what
// it waits for, and has the writes that people need of it.
//
// It reads API servers with the rights of its user, and needs no server. Views are computed by
// internal/view from what was read, and rendered by internal/view/text. This folder has the flags,
// and the requests that write.
//
// Guarantees: a command that fails, or whose subject is not done, ends with a code other than 0; an
// error names what was expected and the right that is missing; nothing is written but by a command
// that is documented to write.
//
// Not guaranteed: that a view is newer than the reads that it was computed from.
package main
