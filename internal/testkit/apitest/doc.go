// Package apitest is an API server of the machine API in memory, for tests of controllers.
//
// It stores MachineDeployments, MachineSets, Machines and MachineClasses as an API server does: UIDs, resourceVersions,
// generations, finalizers, deletion in two steps, the status as a subresource, preconditions of patches and deletes. Every
// change shows in a View before the request returns, or when a test decides. Requests can be rejected and their answers
// lost, and are counted.
//
// Guarantees: it is safe for concurrent use, and starts no goroutines. Not guaranteed: validation, admission, watches, field
// selectors, other kinds.
package apitest
