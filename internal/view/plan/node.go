package plan

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machine/inplace"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machine/nodesync"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/drainer/drain"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/machinefacts"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/view"
)

func (w *world) settings() drain.Settings { return SettingsOf(w.in.Snapshot) }

// SettingsOf returns the fleet's settings of drains.
func SettingsOf(s view.Snapshot) drain.Settings {
	t := s.Timeouts
	return drain.Settings{Timeout: t.Drain, MaxEvictRetries: t.MaxEvictRetries}
}

// deletion returns how long the deletion of a machine takes. A drain that a budget blocks for good
// ends by force.
func (w *world) deletion(m *v1alpha1.Machine) time.Duration {
	took := w.draws(w.in.Durations.Delete, "delete", m.Name, someDelete)
	if forced := w.block(m, drain.ForDeletion(m, w.settings())); forced > 0 {
		took += forced
	}
	return took
}

// block records what blocks the drain of a machine's Node, and returns after which time the drain
// is forced where waiting does not help; 0 otherwise.
func (w *world) block(m *v1alpha1.Machine, order drain.Order) (forced time.Duration) {
	b := DrainOf(w.pods[m.Labels[v1alpha1.LabelNode]], w.in.Snapshot, order)
	b.Node, b.Machine = m.Labels[v1alpha1.LabelNode], m.Name
	if len(b.Pods) > 0 && !slices.ContainsFunc(w.blocked, func(known BlockedDrain) bool { return known.Node == b.Node }) {
		w.blocked = append(w.blocked, b)
	}
	return b.Takes()
}

// DrainOf returns what blocks the drain of a Node with these pods, in that order.
func DrainOf(pods []*corev1.Pod, s view.Snapshot, order drain.Order) (b BlockedDrain) {
	if len(pods) == 0 || order.Force {
		return b
	}
	if b.Forced.Duration = order.Timeout; order.EvictTime > 0 {
		b.Forced.Duration = min(order.Timeout, order.EvictTime)
	}
	for _, o := range drain.Outlooks(pods, s.Budgets, SettingsOf(s)) {
		if o.Blocked == nil {
			continue
		}
		b.Pods = append(b.Pods, Blocker{
			Pod: o.Pod.Namespace + "/" + o.Pod.Name, Budgets: o.Blocked.Budgets, Why: o.Blocked.Text(),
			Stays: o.Blocked.IsMisconfigured || o.Blocked.IsUncounted || o.Blocked.IsUnevictable,
		})
	}
	return b
}

// Takes returns after which time the drain is forced where waiting does not help; 0 otherwise.
func (b BlockedDrain) Takes() time.Duration {
	if slices.ContainsFunc(b.Pods, func(p Blocker) bool { return p.Stays }) {
		return b.Forced.Duration
	}
	return 0
}

// isShut reports whether the Node of a machine is drained for an update.
func (w *world) isShut(m *v1alpha1.Machine) bool {
	node := w.nodes[m.Labels[v1alpha1.LabelNode]]
	return node != nil && inplace.IsShut(node)
}

// passNodes has each Node carry what its update in place needs, as the machine controller does.
func (w *world) passNodes() {
	for _, m := range w.machinesByName() {
		for range mostActions {
			node := w.nodes[m.Labels[v1alpha1.LabelNode]]
			if node == nil || m.DeletionTimestamp != nil {
				break
			}
			before := w.version
			m = w.passNode(m, node)
			if w.version == before {
				break
			}
		}
	}
}

// passNode takes one step with the Node of a machine, and returns the machine.
func (w *world) passNode(m *v1alpha1.Machine, node *corev1.Node) *v1alpha1.Machine {
	drained := ""
	if w.drained[m.UID] {
		drained = "The Node is drained"
	}
	inOldSet := false
	if set := w.set(metav1.GetControllerOfNoCopy(m).UID); set != nil {
		inOldSet = nodesync.RolloutOf(set).IsOld
	}
	v := inplace.Decide(inplace.World{
		Now: w.now, Machine: m, Node: node, InOldSet: inOldSet, NoComponentsTaint: w.in.Settings.NoComponentsTaint, Drained: drained,
	})
	if !machinefacts.Same(v.Node, node) {
		w.writeNode(v.Node.DeepCopy())
		return m
	}
	if v.Drain && drained == "" && w.next[m.UID].is != nodeIsDrained {
		w.drainForUpdate(m, node)
		return m
	}
	phase, result := m.Status.CurrentStatus.Phase, inplace.Result(node)
	switch {
	case inplace.IsDrained(node) && phase == v1alpha1.MachineRunning:
		delete(w.drained, m.UID)
		w.next[m.UID] = due{w.later(w.now.Add(w.draws(w.in.Durations.Update, "update", m.Name, someUpdate))), nodeIsUpdated}
		return w.setPhase(m, v1alpha1.MachineInPlaceUpdating)
	case result == v1alpha1.UpdateResultSuccessful &&
		(phase == v1alpha1.MachineInPlaceUpdating || phase == v1alpha1.MachineInPlaceUpdateFailed):
		return w.setPhase(m, v1alpha1.MachineInPlaceUpdateSuccessful)
	case phase == v1alpha1.MachineInPlaceUpdateSuccessful:
		return w.setPhase(m, v1alpha1.MachineRunning)
	}
	return m
}

// drainForUpdate begins the drain of a Node that is selected.
func (w *world) drainForUpdate(m *v1alpha1.Machine, node *corev1.Node) {
	took := w.in.Durations.Drain.Draw(w.number, "drain", m.Name, 0)
	took += w.block(m, drain.ForUpdate(m, w.now, w.settings()))
	w.next[m.UID] = due{w.later(w.now.Add(took)), nodeIsDrained}
	w.note(Step{Do: DrainNode, Name: node.Name, Set: w.setName(m), Zone: w.zone(m), Why: "it is selected for its update in place"})
}

// writeNode stores a Node. What waits for components of the cluster does not wait in the
// simulation.
func (w *world) writeNode(node *corev1.Node) {
	node.ResourceVersion = w.written()
	node.Spec.Taints = slices.DeleteFunc(node.Spec.Taints, func(t corev1.Taint) bool {
		return t.Key == v1alpha1.TaintCriticalComponentsNotReady
	})
	w.nodes[node.Name] = node
}
