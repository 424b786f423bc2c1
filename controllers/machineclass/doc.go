// Package machineclass releases MachineClasses and their Secrets. The machine controller adds our
// finalizers to both before it creates the first VM of a class; this controller removes them when
// no machine is left that needs them for its deletion.
//
// Guarantees: a class keeps the finalizer while a live list of the API server returns a machine of
// it, and a Secret while one returns a class with a finalizer that names it and may use it, in any
// served namespace. The Secrets are released first, so that an interrupted release of a class is
// continued. They are released under the ownership of the class; those that no class names any
// more, under their own. A Secret that a class may not use (v1alpha1.SharedWith) is neither kept
// nor written for it. A class with VMs that lacks the finalizer, or names a Secret that lacks it,
// gets it at the next event of the class. A Secret that a class ceased to name while its slot had
// no holder is released when the slot has one.
//
// Not guaranteed: that a class is released at once. The deletion of the last machine on another
// replica is noticed within 5 s if the class is being deleted, and otherwise within a minute.
package machineclass
