package rollout

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/machinefacts"
)

// inPlaceUpdates are the updates in place of a deployment's machines.
type inPlaceUpdates struct{ *sets }

// update completes in-place updates before sizes are decided: Nodes carry what they should, and
// machines that were updated belong to the set of their new template. It does so for each strategy,
// so that updates that have begun end.
func (s inPlaceUpdates) update() (v Verdict, decided bool) {
	if nodes := s.nodesOutOfStep(); len(nodes) > 0 {
		return Verdict{Do: WriteNodes, Nodes: nodes}, true
	}
	if v, moves := s.transfers(); moves {
		return v, true
	}
	if !s.isUnsettled() {
		return Verdict{}, false
	}
	if s.w.Live == nil {
		return Verdict{Do: ReadLive}, true
	}
	s.settle()
	return Verdict{}, false
}

// next does what follows when all sets have their sizes.
func (s inPlaceUpdates) next() (v Verdict, decided bool) {
	if arrived := s.arrived(); len(arrived) > 0 {
		return Verdict{Do: WriteMachines, Machines: arrived}, true
	}
	return s.selectNodes()
}

// stepInPlace sets the next sizes of the sets. The new set grows while there is room, and the old
// ones shrink only by machines that are more than there may be: those beyond replicas + surge, and
// when the new set has its size, all that are left. While it is paused no machine is created beyond
// the replicas, and none is deleted because it is old.
//
//	replicas 3, surge 1; old 3, new 0 of 0  →  room 3 + 1 − 3 = 1: new 1
//	old 3, new 1 of 1: one is updated       →  old 2, new 2; then old 1, new 3
//	old 1, new 3 of 3                       →  the last old one is not needed: old 0
//
// Before all that, the sets shrink by those of their machines that the autoscaler has named, and
// the old ones by those that never ran.
func (s *sizing) stepInPlace() {
	l := s.limits
	if s.isResized() && len(s.namedMachines) > 0 {
		if s.w.Live == nil {
			s.needsLive = true
			return
		}
		tooMany := -s.replicas
		for _, t := range s.active() {
			tooMany += t.size
		}
		dropNamed(s.active(), tooMany)
	}
	if s.d.Spec.Paused {
		l.surge = 0
	} else {
		dropNeverRan(s.old)
	}
	s.newSet.size = rollUp(l, s.total(), s.newSet.size)
	most := max(s.most()-s.newSet.size, 0)
	if s.newSet.size == s.replicas && !s.d.Spec.Paused {
		most = 0
	}
	shed(most, s.least(s.preserved()), s.newSet, s.old)
}

// dropNeverRan shrinks the old sets by their machines that never ran. These have no Nodes to
// update, cost nothing that runs, and may never fail: a rollout that waits for them would wait for
// as long as the template which they were created from cannot be created. A set deletes them before
// all others, so that those which it has to delete anyway are counted once.
//
//	old 3, of which 1 never ran  →  old 2; then 3 exist for 2, and 1 is excess already: old 2
func dropNeverRan(old []*tally) {
	for _, t := range old {
		excess := max(t.standing-t.deleting-t.size, 0)
		t.size -= min(max(t.neverRan-excess, 0), t.size)
	}
}

// shed shrinks the old sets until they have most machines together, the oldest first: at first by
// machines that are not available, then by available ones while there are more than the least. New
// machines that are not available yet have as many old ones stay: these may be of use again before
// those are.
//
//	most 0, least 3; new 3 of which 2 are available; old 2 of which 1 is available
//	  budget 2 + 2 − 3 = 1; idle 2 − 1 = 1: old 2 − min(1, 1) = 1; spare 2 + 1 − 3 = 0: old 1
func shed(most, least int32, newSet *tally, old []*tally) {
	sizes, available := int32(0), newSet.available()
	for _, t := range old {
		sizes += t.size
		available += t.available()
	}
	budget := min(sizes-most, sizes+newSet.available()-least)
	for _, spare := range []int32{0, max(available-least, 0)} {
		for _, t := range old {
			for budget > 0 && t.size > 0 {
				before := t.available()
				t.size--
				loss := before - t.available()
				if loss > spare {
					t.size++
					break
				}
				spare -= loss
				budget--
			}
		}
	}
}

// isSource reports whether machines of the set are being updated to the template of another one, to
// which they move.
func (s inPlaceUpdates) isSource(t *tally) bool {
	return slices.ContainsFunc(s.w.Machines[t.set.UID], func(m *v1alpha1.Machine) bool {
		node := nodeOf(s.w.Nodes, m)
		if node == nil || m.DeletionTimestamp != nil || !hasBegun(node) {
			return false
		}
		to := s.destination(t, node)
		return to != nil && to != t
	})
}

// destination returns the set to which the machine of a Node moves, or has moved: the one that is
// recorded, else the new one. It is nil when that set does not exist any more.
func (s inPlaceUpdates) destination(t *tally, node *corev1.Node) *tally {
	name := node.Annotations[v1alpha1.AnnotationUpdateTo]
	if name == "" { // of a rollout that another controller has begun
		return s.newSet
	}
	for _, other := range s.all() {
		if other.set.Name == name && other.set.DeletionTimestamp == nil {
			return other
		}
	}
	if t.set.Name == name {
		return t
	}
	return nil
}

// nodeOf returns the Node of a machine; nil when it is not shown, or not yet the machine's.
func nodeOf(nodes map[string]*corev1.Node, m *v1alpha1.Machine) *corev1.Node {
	node := nodes[m.Labels[v1alpha1.LabelNode]]
	if node == nil || node.Labels[v1alpha1.LabelMachineName] != m.Name {
		return nil
	}
	return node
}

// isUpdating reports whether the machine is selected for its in-place update, or about to be; and
// after that, until its critical components are ready. Where they never are, no second Node is
// updated.
func isUpdating(d *v1alpha1.MachineDeployment, nodes map[string]*corev1.Node, m *v1alpha1.Machine) bool {
	if slices.ContainsFunc(selecting(d), func(c chosen) bool { return c.UID == m.UID }) {
		return true
	}
	node := nodeOf(nodes, m)
	return node != nil && (hasBegun(node) || machinefacts.AwaitsComponents(node))
}

// hasBegun reports whether a Node's update is in progress, or has ended and its machine has not
// moved yet.
func hasBegun(node *corev1.Node) bool {
	return machinefacts.IsInPlaceCandidate(node) && machinefacts.IsInPlaceSelected(node) || node.Labels[v1alpha1.LabelUpdateResult] != ""
}

// isUpdated reports whether the update has succeeded, and the machine controller has recorded it.
func isUpdated(m *v1alpha1.Machine, node *corev1.Node) bool {
	if node.Labels[v1alpha1.LabelUpdateResult] != v1alpha1.UpdateResultSuccessful ||
		machinefacts.InPlaceStage(node) != v1alpha1.NodeReasonUpdateSuccessful {
		return false
	}
	switch m.Status.CurrentStatus.Phase { //nolint:exhaustive // all others do not show it yet, or are being deleted
	case v1alpha1.MachineInPlaceUpdateSuccessful, v1alpha1.MachineRunning, v1alpha1.MachineAvailable, v1alpha1.MachineUnknown:
		return m.DeletionTimestamp == nil
	}
	return false
}
