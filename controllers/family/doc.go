// Package family follows objects that belong to a parent: the machines of MachineSets and the MachineSets of
// MachineDeployments.
//
// Guarantees: whenever a child appears, changes or goes, its parent is looked at, and so is the parent that it had before;
// a child without a parent is offered to every parent whose selector matches it.
//
// RootOf finds the root above a machine, and OnPermit tells of the permits that stand there.
//
// Not guaranteed: that a child which is not shown does not exist.
package family
