// Package rollout decides which MachineSets a MachineDeployment has and how large they are. It is
// pure: Decide is a function from what was observed (a World) to what to do (a Verdict).
//
// The deployment's new set is the one whose template equals the deployment's; all others are old. A
// deployment without a new set gets one, under a name derived from the template's hash, so that
// creating it twice creates one set. How replicas move from the old sets to the new one depends on
// the strategy:
//
//	RollingUpdate  step by step: the new set grows while there is room, the old ones shrink while enough machines are available
//	Recreate       the old sets shrink to nothing, and when a live list shows no machine of theirs the new one grows
//	InPlaceUpdate  machines keep their VMs: Nodes of old machines are selected while enough machines are available, and a machine
//	               whose update has succeeded moves from its old set to the new one
//
// A change of the replicas in the middle of a rollout is distributed to the sets first, and the
// rollout continues from there. A paused deployment is resized, and creates no new set.
//
// The cluster-autoscaler names machines and lowers the replicas in one write. A named machine is
// marked first, and its set gets the time of the marks together with the size that belongs to them:
// it deletes a marked machine only then, and no other one in its place.
//
// Sets are counted by the machines that the cache shows and by the sizes in their specs, whichever
// is less favourable: a machine counts until it does not exist any more, and is available only
// while its set is not about to delete it. So no decision depends on earlier decisions, nor on how
// late the cache is.
//
// A machine that changes its set is never one too many nor one too few. Its old set must not create
// machines from then on; the machine carries a label while the new set's size does not include it
// yet; and sizes follow a live list of which set has which machines. Which Nodes are selected is an
// intent: it is written on the deployment before the first of them is labelled. The set to which a
// machine moves is recorded on its Node before its update begins, so that a change of the template
// in the middle moves no machine to a set whose template it does not have.
//
// Guarantees, tested with generated worlds: no decision takes the available machines below replicas
// − maxUnavailable, nor all of them above replicas + maxSurge; a rollout ends, and in the same
// state for every order of events; the finalizer is removed only after a live list has shown no
// set.
package rollout
