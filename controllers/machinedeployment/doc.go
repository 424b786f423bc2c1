// Package machinedeployment is the controller of MachineDeployments: it carries out what rollout decides.
//
// A pass observes one deployment with its sets, asks rollout.Decide for the next action, carries it out, and asks again
// until it may rest. The status is written a moment late, so that one write tells of many changes.
//
// Guarantees: of a deployment only metadata and status are written, never its spec; a delete carries the set's UID and
// resourceVersion.
package machinedeployment
