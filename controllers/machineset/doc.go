// Package machineset is the controller of MachineSets: it takes the actions that package scale
// decides.
//
// A pass observes one set with its machines, calls scale.Decide for the next action, takes it, and
// calls Decide again until the verdict is Rest. The status, which changes with every machine, is
// written a moment late, so that one write contains many changes.
//
// Guarantees: a machine is created or deleted only after the decision was recorded on the set; a
// delete carries the machine's UID and resourceVersion.
package machineset
