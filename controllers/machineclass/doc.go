// Package machineclass lets go of MachineClasses and their Secrets. The machine controller puts our finalizers on both
// before it makes the first VM of a class; this controller takes them off when no machine is left that needs them to be
// deleted.
//
// Guarantees: a class keeps the finalizer while a live list of the API server shows a machine of it, and a Secret while
// one shows a class with a finalizer that names it. The Secrets go first, so that a class that is broken off in the
// middle is found again.
// Not guaranteed: that the finalizer comes back when somebody else takes it off while machines exist.
package machineclass
