// Package machinedeployment is the controller of MachineDeployments: it takes the actions that
// package rollout decides.
//
// A pass observes one deployment with its sets, calls rollout.Decide for the next action, takes it,
// and calls Decide again until the verdict is Rest. The status is written a moment late, so that
// one write contains many changes.
//
// A rollout is decided on the machines themselves and not on the statuses of the sets, which are
// older. The sets have what the Nodes of their machines must have, and the machine controller
// writes it to the Nodes. Only labels and annotations that request or end an in-place update are
// written to Nodes here.
//
// Machines are written for two purposes only: those that the cluster-autoscaler names are marked,
// and those that were updated in place change their set.
//
// Guarantees: of a deployment only metadata and status are written, and its spec only for a
// requested rollback; a delete carries the set's UID and resourceVersion; a Node or a machine is
// written only in the version that was decided on.
package machinedeployment
