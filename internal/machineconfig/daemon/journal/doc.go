// Package journal contains what machine-config-daemon records about its transactions, and what
// follows from it after a crash. It is pure.
//
// Two files decide. The manifest is the record of the applied config; replacing it is the commit.
// The journal is the record of a transaction, and is durable before the first change of the tree:
//
//	journal   manifest                      the tree is     after a crash
//	none      any                           the manifest's  nothing to do
//	there     not of the journal's ID       a mix           undo all steps, remove the journal
//	there     of the journal's ID           new             continue: actions, proof of the boot, remove the journal
//
// Neither file has contents of files: they name objects by their digest, in the daemon's folder,
// which are durable before the journal is. A file that cannot be read or is not valid is an error:
// the daemon then changes nothing.
package journal
