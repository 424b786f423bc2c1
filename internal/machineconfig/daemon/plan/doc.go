// Package plan decides what machine-config-daemon changes on a machine. It is pure: the desired
// tree, the record of the last transaction and what was observed go in, and a Plan comes out.
//
// A path is a file, a symbolic link, or absent; a unit, a drop-in, an enabled or masked unit and a
// user's SSH keys are such paths as well (package desired). So every change is of one kind, and one
// transaction has all of them.
//
// A Plan with refusals must not be carried out: it is all or nothing. Messages name fields, paths,
// sizes and digests, and never content, which may be secret.
//
// Not here: whether the machine may be disrupted now (package lifecycle), and the order of writes
// (package transaction).
package plan
