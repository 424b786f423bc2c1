// Package machineset is the controller of MachineSets: it carries out what scale decides.
//
// A pass observes one set with its machines, asks scale.Decide for the next action, carries it out, and asks again until
// it may rest. The status, which changes with every machine, is written a moment late, so that one write tells of many
// changes.
//
// Guarantees: a machine is made or deleted only after the decision was written on the set; a delete carries the machine's
// UID and resourceVersion.
package machineset
