package lifecycle

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machine/inplace"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machine/nodesync"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machine/preserve"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/drainer/drain"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/machinefacts"
)

// nodeUpdate is the update of a machine's Node after a verdict on the machine's health.
type nodeUpdate struct {
	World

	health Verdict
	node   *corev1.Node // nil when the machine has none
	known  bool         // whether it has one

	// After preserve.
	preservation preserve.Verdict
	// After compare: the patches that bring the Node in sync, nil for none, and the action that drains
	// it, Rest for none.
	main, status *nodesync.Patch
	drain        Action
}

// nodeRule decides one case of the update of a Node. decide returns false where the next rule
// decides.
type nodeRule struct {
	name   string
	decide func(*nodeUpdate) (v Verdict, decided bool)
}

// claimRules come before the machine's preservation is known.
var claimRules = []nodeRule{
	{"claim not recorded", (*nodeUpdate).recordClaim},
	{"Node not claimed", (*nodeUpdate).claim},
	{"another action is next", (*nodeUpdate).act},
	{"Node unknown", (*nodeUpdate).findNode},
}

// absenceRules come when it is known. After them, the machine has a Node, which is claimed and not
// being deleted: other actions are next for one that is not.
var absenceRules = []nodeRule{
	{"machine not written", (*nodeUpdate).saveMachine},
	{"no Node", (*nodeUpdate).restWithoutNode},
	{"author of cordon unknown", (*nodeUpdate).findCordon},
}

// syncRules come when the Node has been compared with what it has to carry. The machine is written
// first, and then the Node, one request after the other, until the Node is in sync.
var syncRules = []nodeRule{
	{"Node in sync", (*nodeUpdate).restInSync},
	{"machine differs", (*nodeUpdate).saveDifference},
	{"patch not recorded", (*nodeUpdate).recordPatch},
	{"metadata or spec differs", (*nodeUpdate).patchMain},
	{"status differs", (*nodeUpdate).patchStatus},
	{"Node not drained", (*nodeUpdate).drainNode},
}

// updateNode adds to a verdict on the health of a machine what its Node has to carry. The first
// rule that decides ends the list.
func updateNode(w World, v Verdict) Verdict {
	u := &nodeUpdate{World: w, health: v}
	u.node, u.known = ownNode(w)
	if next, decided := u.first(claimRules); decided {
		return next
	}
	u.preserve()
	if next, decided := u.first(absenceRules); decided {
		return next
	}
	u.compare()
	next, _ := u.first(syncRules)
	return next
}

func (u *nodeUpdate) first(rules []nodeRule) (v Verdict, decided bool) {
	for _, rule := range rules {
		if v, decided = rule.decide(u); decided {
			return v, true
		}
	}
	return Verdict{}, false
}

// preserve adds to the verdict whether the machine is preserved.
func (u *nodeUpdate) preserve() {
	u.health, u.preservation = addPreservation(u.World, u.health, u.node)
}

// compare finds what has to be written to the Node, and whether it has to be drained.
func (u *nodeUpdate) compare() {
	wanted := wantedNode(u.World)
	if wanted.Rollout != nil && !u.preservation.Until.IsZero() { // the preservation keeps the autoscaler from it
		wanted.Rollout = &nodesync.Rollout{PreferNoSchedule: wanted.Rollout.PreferNoSchedule}
	}
	wanted.Uncordon = wanted.Uncordon && !inplace.IsShut(u.node)
	updated := updateInPlace(u.World, u.health, u.preservation.Node)
	u.main, u.status = nodesync.Diff(u.node, wanted.Apply(updated.Node))
	u.drain = drainOf(u.World, u.preservation, updated)
}

// recordClaim records on the machine what a claim will write.
func (u *nodeUpdate) recordClaim() (v Verdict, decided bool) {
	if u.health.Do != ClaimNode || isRemembered(u.World) {
		return Verdict{}, false
	}
	return remember(u.World), true
}

// claim claims the Node. The machine may not have the name of the Node yet. That it is preserved is
// recorded on the machine first.
func (u *nodeUpdate) claim() (v Verdict, decided bool) {
	if u.health.Do != ClaimNode {
		return Verdict{}, false
	}
	main, _ := nodesync.Diff(u.Node.Node, wantedNode(u.World).Apply(u.Node.Node))
	return write(u.World, u.health, ClaimNode, main), true
}

func (u *nodeUpdate) act() (v Verdict, decided bool) {
	return u.health, u.health.Do != Rest && u.health.Do != Save
}

// findNode reads a Node that may have an annotation to preserve the machine, which has precedence.
func (u *nodeUpdate) findNode() (v Verdict, decided bool) {
	return do(FindNode), !u.known && (preserve.Matters(u.Machine) || becomesFailed(u.World, u.health))
}

func (u *nodeUpdate) saveMachine() (v Verdict, decided bool) {
	return u.health, u.health.Do == Save || !u.known
}

func (u *nodeUpdate) restWithoutNode() (v Verdict, decided bool) {
	if u.node != nil {
		return Verdict{}, false
	}
	return remark(u.World, u.health, unknownValue(u.preservation)), true
}

func (u *nodeUpdate) findCordon() (v Verdict, decided bool) {
	return do(FindNode), findCordon(u.World, u.node) && !inplace.IsShut(u.node)
}

func (u *nodeUpdate) restInSync() (v Verdict, decided bool) {
	if u.main != nil || u.status != nil || u.drain != Rest {
		return Verdict{}, false
	}
	return restWithNode(u.World, u.health, u.preservation), true
}

func (u *nodeUpdate) saveDifference() (v Verdict, decided bool) {
	if u.health.Machine == nil || machinefacts.Same(u.health.Machine, u.Machine) {
		return Verdict{}, false
	}
	v = u.health
	v.Do = Save
	return v, true
}

// recordPatch records on the machine what a patch will write.
func (u *nodeUpdate) recordPatch() (v Verdict, decided bool) {
	if u.main == nil || isRemembered(u.World) {
		return Verdict{}, false
	}
	return remember(u.World), true
}

func (u *nodeUpdate) patchMain() (v Verdict, decided bool) {
	return write(u.World, u.health, PatchNode, u.main), u.main != nil
}

func (u *nodeUpdate) patchStatus() (v Verdict, decided bool) {
	return write(u.World, u.health, PatchNode, u.status), u.status != nil
}

func (u *nodeUpdate) drainNode() (v Verdict, decided bool) { return do(u.drain), true }

// drainOf returns the action that drains a Node whose VM stays; Rest when there is nothing to
// drain, or it was done in this pass.
func drainOf(w World, p preserve.Verdict, u inplace.Verdict) Action {
	switch {
	case p.Drain && w.PreservedDrain.State == preserve.DrainUnknown:
		return DrainPreserved
	case u.Drain && w.UpdateDrain.State == drain.Unknown:
		return DrainForUpdate
	}
	return Rest
}

func becomesFailed(w World, v Verdict) bool {
	return v.Machine != nil && v.Machine.Status.CurrentStatus.Phase == v1alpha1.MachineFailed &&
		w.Machine.Status.CurrentStatus.Phase != v1alpha1.MachineFailed
}
