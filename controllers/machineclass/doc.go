// Package machineclass lets go of MachineClasses and their Secrets. The machine controller puts our finalizers on both
// before it makes the first VM of a class; this controller takes them off when no machine is left that needs them to be
// deleted.
//
// Guarantees: a class keeps the finalizer while a live list of the API server shows a machine of it, and a Secret while
// one shows a class with a finalizer that names it and may use it, in whatever namespace that is served. The Secrets go
// first, so that a class that is broken off in the middle is found again. They are let go under the ownership of the class;
// those that no class names any more, under their own. A Secret that a class may not use (v1alpha1.SharedWith) is neither
// held nor written for it.
// A class with VMs that lacks the finalizer, or names a Secret that lacks it, gets it at the class' next event. A Secret
// that a class stopped to name while nobody held its slot is let go when somebody does.
//
// Not guaranteed: that a class is let go at once. The end of another replica's last machine of it is noticed within 5 s when
// it is to be deleted, and else within a minute.
package machineclass
