// Package ownerref follows objects that belong to a parent: the machines of MachineSets and the
// MachineSets of MachineDeployments. RootOf finds the root above a machine.
//
// Guarantees: whenever a child is added, changed or deleted, its parent is enqueued, and so is its
// previous parent; a child without a parent is offered to every parent whose selector matches it.
//
// Not guaranteed: that a child which the cache does not show does not exist.
package ownerref
