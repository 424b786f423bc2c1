// Package machinedeployment is the controller of MachineDeployments: it carries out what rollout decides.
//
// A pass observes one deployment with its sets, asks rollout.Decide for the next action, carries it out, and asks again
// until it may rest. The status is written a moment late, so that one write tells of many changes.
//
// What a rollout goes by are the machines themselves and not what the sets' statuses tell of them later. The sets carry what the
// Nodes of their machines are to, and whoever sees to a machine sees to its Node. Of Nodes only that is written here which asks
// for an update in place, and which ends it.
//
// Machines are not written here, either, but for two things: those that the cluster-autoscaler names are marked, and those that
// were updated in place change their set.
//
// Guarantees: of a deployment only metadata and status are written, and its spec only where that asks for a rollback; a
// delete carries the set's UID and resourceVersion; a Node or a machine is only ever written as it was decided on.
package machinedeployment
