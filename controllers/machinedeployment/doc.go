// Package machinedeployment is the controller of MachineDeployments: it carries out what rollout decides.
//
// A pass observes one deployment with its sets, asks rollout.Decide for the next action, carries it out, and asks again
// until it may rest. The status is written a moment late, so that one write tells of many changes.
//
// What a rollout goes by are the machines themselves and not what the sets' statuses tell of them later. Nodes are not written
// here: the sets carry what the Nodes of their machines are to, and whoever sees to a machine sees to its Node.
//
// Machines are not written here, either, but for one thing: those that the cluster-autoscaler names are marked.
//
// Guarantees: of a deployment only metadata and status are written, and its spec only where that asks for a rollback; a
// delete carries the set's UID and resourceVersion.
package machinedeployment
