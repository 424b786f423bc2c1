// Package rollout decides which MachineSets a MachineDeployment has and how large they are. It is pure: Decide is a
// function from what was observed (a World) to what to do (a Verdict).
//
// The deployment's new set is the one whose template equals the deployment's; all others are old. A deployment without a new
// set gets one, under a name made of the template's hash, so that making it twice makes one set. How replicas move from
// the old sets to the new one is the strategy's:
//
//	RollingUpdate  step by step: the new set grows while there is room, the old ones shrink while enough machines are available
//	Recreate       the old sets shrink to nothing, and when a live list shows no machine of theirs the new one grows
//	InPlaceUpdate  machines keep their VMs: Nodes of old machines are selected while enough machines are available, and a machine
//	               whose update has succeeded goes from its old set to the new one
//
// A change of the replicas in the middle of a rollout is handed on first, and the rollout goes on from there. A paused
// deployment is resized, and makes no new set.
//
// The cluster-autoscaler names machines and lowers the replicas in one write. What is named is marked first, and its set hears of
// that together with the size that belongs to it: it deletes a marked machine not before, and no other one in its place.
//
// Sets are counted by the machines that the cache shows and the sizes that they have been told, whichever is less favourable:
// a machine counts until it is gone, and is available only while its set is not about to delete it. So nothing depends on
// what was decided before, nor on how late the cache is.
//
// A machine that changes its set is never one too many nor one too few. Its old set is kept from making machines before that; it
// carries a label while the new set's size does not tell of it yet; and sizes follow what the API server itself says of who has
// which machines. Which Nodes are selected is an intent: it is written on the deployment before the first of them is labelled. To
// which set a machine comes is noted on its Node before its update begins, so that another template in the middle makes no
// machine one of a template that it does not have.
//
// Guarantees, tested with generated worlds: no decision takes the available machines below replicas − maxUnavailable, nor all
// of them above replicas + maxSurge; a rollout ends, and in the same way whatever comes first; the finalizer goes only after
// a live list has shown no set.
package rollout
