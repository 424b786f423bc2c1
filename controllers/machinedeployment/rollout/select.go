package rollout

import (
	"encoding/json"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/machinefacts"
)

// chosen is a machine whose Node is about to be selected for its update in place.
type chosen struct {
	Name string    `json:"name"`
	UID  types.UID `json:"uid"`
}

// mostChosen is how many machines are about to be selected at the most.
const mostChosen = 1000

// selecting reads the machines whose Nodes are about to be selected. An invalid list counts as
// none, and so does one that is longer than mostChosen: a controller has not written it.
func selecting(d *v1alpha1.MachineDeployment) []chosen {
	text, noted := d.Annotations[v1alpha1.AnnotationSelecting]
	if !noted {
		return nil
	}
	var all []chosen
	if err := json.Unmarshal([]byte(text), &all); err != nil || len(all) > mostChosen {
		return nil
	}
	return all
}

// withSelecting is the deployment with other machines whose Nodes are about to be selected.
func withSelecting(d *v1alpha1.MachineDeployment, all []chosen) *v1alpha1.MachineDeployment {
	d = d.DeepCopy()
	if len(all) == 0 {
		delete(d.Annotations, v1alpha1.AnnotationSelecting)
		return d
	}
	text, err := json.Marshal(all)
	if err != nil { // names always encode
		return d
	}
	metav1.SetMetaDataAnnotation(&d.ObjectMeta, v1alpha1.AnnotationSelecting, string(text))
	return d
}

// selectNodes selects Nodes for their in-place update. The selection is written to the deployment
// first, so that any replica can complete it. It is removed when it is seen done, and not with the
// next selection only: a Node that is a candidate once more, for another template or after its
// update has failed, would be selected by an old entry, without regard to the limits at that time.
func (s inPlaceUpdates) selectNodes() (v Verdict, decided bool) {
	noted := selecting(s.d)
	open := slices.DeleteFunc(slices.Clone(noted), s.isSelectedOrOver)
	if nodes := s.labelled(open); len(nodes) > 0 {
		return Verdict{Do: WriteNodes, Nodes: nodes}, true
	}
	if s.w.Live == nil && slices.ContainsFunc(open, func(c chosen) bool { return s.find(c.UID) == nil }) {
		return Verdict{Do: ReadLive}, true // that the cache does not show it proves nothing
	}
	next := s.choose(mostChosen - len(open))
	if len(next) == 0 && len(open) == len(noted) {
		return Verdict{}, false
	}
	v = Verdict{Do: Save, Deployment: withSelecting(s.d, append(open, next...))}
	if len(next) > 0 {
		var names []string
		for _, c := range next {
			names = append(names, c.Name)
		}
		v.Events = []Event{{v1alpha1.EventSelectedForUpdate, "Selected for their update in place: " + strings.Join(names, ", ")}}
	}
	return v, true
}

// isSelectedOrOver reports whether the Node of a chosen machine is seen selected, or never will be:
// the machine is being deleted, or does not exist any more, or its Node is no candidate any more,
// so that a late write that selects it would be rejected.
func (s inPlaceUpdates) isSelectedOrOver(c chosen) bool {
	m := s.find(c.UID)
	if m == nil {
		return s.w.Live != nil && !s.isLive(c.UID)
	}
	node := nodeOf(s.w.Nodes, m)
	return m.DeletionTimestamp != nil || node != nil && (hasBegun(node) || !machinefacts.IsInPlaceCandidate(node))
}

func (s inPlaceUpdates) isLive(uid types.UID) bool {
	for _, live := range s.w.Live.Machines {
		if slices.ContainsFunc(live, func(m *metav1.ObjectMeta) bool { return m.UID == uid }) {
			return true
		}
	}
	return false
}

// find returns the machine of a UID; nil when the cache does not show it.
func (s inPlaceUpdates) find(uid types.UID) *v1alpha1.Machine {
	for _, machines := range s.w.Machines {
		for _, m := range machines {
			if m.UID == uid {
				return m
			}
		}
	}
	return nil
}

// labelled returns the Nodes of chosen machines with the label that selects them.
func (s inPlaceUpdates) labelled(open []chosen) (nodes []*corev1.Node) {
	for _, c := range open {
		m := s.find(c.UID)
		if m == nil || nodeOf(s.w.Nodes, m) == nil {
			continue
		}
		node := nodeOf(s.w.Nodes, m).DeepCopy()
		node.Labels[v1alpha1.LabelSelectedForUpdate] = "true"
		nodes = append(nodes, node)
	}
	return nodes
}

// choose returns the machines whose Nodes are selected next, those of the oldest set first, as far
// as there is room for them.
func (s inPlaceUpdates) choose(room int) (next []chosen) {
	if !s.inPlace || isManual(s.d) || s.d.Spec.Paused || s.newSet == nil {
		return nil
	}
	available, updating := s.newSet.available(), int32(0)
	for _, t := range s.old {
		available += t.available()
		updating += t.updating
	}
	most := min(mostSelected(s.limits, s.least(s.preserved()), available, s.newSet.size, updating), int32(room))
	for _, t := range s.old {
		for _, m := range machinefacts.OldestFirst(s.w.Machines[t.set.UID]) {
			if int32(len(next)) < most && !t.intents.Deletes(m.UID) && s.mayBeSelected(t, m) {
				next = append(next, chosen{m.Name, m.UID})
			}
		}
	}
	return next
}

// mostSelected is how many more Nodes may be selected: as many as there are available machines
// beyond the least, and no more than the new set misses.
//
//	replicas 3, least 3: available 3 + 1 new, new 1, updating 0  →  min(4 − 3, 3 − 1 − 0) = 1
//	replicas 3, least 2: available 2, new 0, updating 1          →  min(2 − 2, 3 − 0 − 1) = 0
func mostSelected(l limits, least, available, newSize, updating int32) int32 {
	return max(min(available-least, l.replicas-newSize-updating), 0)
}

// mayBeSelected reports whether a machine is available, and its Node waits for its selection: the
// machine controller has recorded so.
func (s inPlaceUpdates) mayBeSelected(t *tally, m *v1alpha1.Machine) bool {
	node := nodeOf(s.w.Nodes, m)
	available, _ := s.availableIn(t.set, m)
	return available && node != nil && !isUpdating(s.d, s.w.Nodes, m) && machinefacts.IsInPlaceCandidate(node) &&
		machinefacts.InPlaceStage(node) == v1alpha1.NodeReasonCandidateForUpdate &&
		node.Annotations[v1alpha1.AnnotationUpdateTo] == s.newSet.set.Name
}

// waiting counts the Nodes that wait to be selected.
func (s inPlaceUpdates) waiting() (n int32) {
	for _, t := range s.old {
		for _, m := range s.w.Machines[t.set.UID] {
			if s.mayBeSelected(t, m) {
				n++
			}
		}
	}
	return n
}
