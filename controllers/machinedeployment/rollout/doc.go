// Package rollout decides which MachineSets a MachineDeployment has and how large they are. It is pure: Decide is a
// function from what was observed (a World) to what to do (a Verdict).
//
// The deployment's new set is the one whose template equals the deployment's. A deployment without one gets one, under a
// name made of the template's hash, so that making it twice makes one set.
//
// Rollouts are not built yet: a changed template makes the new set with 0 replicas, the old sets go on, and the condition
// Progressing says so with the reason RolloutNotSupported.
//
// Guarantees: the replicas of all sets add up to the deployment's; the finalizer goes only after a live list has shown no
// set; nothing beyond MachineDeployment's metadata and status is written on it.
package rollout
