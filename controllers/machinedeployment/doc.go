// Package machinedeployment is the controller of MachineDeployments: it carries out what rollout decides.
//
// A pass observes one deployment with its sets, asks rollout.Decide for the next action, carries it out, and asks again
// until it may rest. The status is written a moment late, so that one write has many changes.
//
// A rollout is decided by the machines themselves and not by the statuses of the sets, which are later. The sets carry what the Nodes
// of their machines have to carry, and the machine controller writes it to the Nodes. Only labels and annotations that request or
// end an in-place update are written to Nodes here.
//
// Machines are not written here, either, but for two things: those that the cluster-autoscaler names are marked, and those that
// were updated in place change their set.
//
// Guarantees: of a deployment only metadata and status are written, and its spec only where that requests a rollback; a
// delete carries the set's UID and resourceVersion; a Node or a machine is only ever written as it was decided on.
package machinedeployment
