package machinesim

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	fleetv1alpha1 "github.com/machine-controller-fleet/machine-controller-fleet/apis/fleet/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machinedeployment/rollout"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/machinefacts"
)

// has is the annotation with the template that the VM of a Node really has.
const has = "has"

func inPlaceUpdate(surge, unavailable string, orchestration v1alpha1.OrchestrationType) v1alpha1.MachineDeploymentStrategy {
	return v1alpha1.MachineDeploymentStrategy{
		Type: v1alpha1.InPlaceUpdateMachineDeploymentStrategyType,
		InPlaceUpdate: &v1alpha1.InPlaceUpdateMachineDeployment{
			UpdateConfiguration: rollingUpdate(surge, unavailable).RollingUpdate.UpdateConfiguration, OrchestrationType: orchestration,
		},
	}
}

func nodeName(machine string) string { return "node-of-" + machine }

// setOf is the name of a machine's set.
func setOf(m *v1alpha1.Machine) string {
	if owner := metav1.GetControllerOfNoCopy(m); owner != nil {
		return owner.Name
	}
	return ""
}

// join creates the Node of a machine, whose VM has the machine's template.
func (r *rolling) join(m *v1alpha1.Machine) {
	m.Labels[v1alpha1.LabelNode] = nodeName(m.Name)
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name: nodeName(m.Name), UID: types.UID("uid-" + nodeName(m.Name)), Labels: map[string]string{v1alpha1.LabelMachineName: m.Name},
		Annotations: map[string]string{has: m.Annotations["template"]},
	}}
	if r.pool != nil {
		r.bootDaemon(m, node)
	}
	r.nodes.create(node)
}

// isSelected reports whether the Node of a machine is drained, or about to be, or not yet fit for
// pods after that.
func (r *rolling) isSelected(m *v1alpha1.Machine) bool {
	node, known := r.nodes.now()[nodeName(m.Name)]
	return known && (node.Labels[v1alpha1.LabelSelectedForUpdate] == "true" || len(node.Spec.Taints) > 0)
}

// updateInPlace takes one step of the update of a machine's Node: one of the machine controller, or
// one of the agent.
func (r *rolling) updateInPlace(name string) {
	m, known := r.machines.now()[name]
	node, there := r.nodes.now()[nodeName(name)]
	if !known || !there || m.DeletionTimestamp != nil {
		return
	}
	candidate, result := node.Labels[v1alpha1.LabelCandidateForUpdate] == "true", node.Labels[v1alpha1.LabelUpdateResult]
	phase := m.Status.CurrentStatus.Phase
	switch stage := machinefacts.InPlaceStage(node); {
	case len(node.Spec.Taints) > 0 && result == "":
		if r.isOver(m, time.Minute) { // its critical components are ready
			node = node.DeepCopy()
			node.Spec.Taints = nil
			r.nodes.update(node)
		}
	case phase == v1alpha1.MachineInPlaceUpdateSuccessful:
		r.setPhase(m, v1alpha1.MachineRunning)
	case phase == v1alpha1.MachineInPlaceUpdateFailed && result == v1alpha1.UpdateResultSuccessful &&
		stage == v1alpha1.NodeReasonUpdateSuccessful:
		r.setPhase(m, v1alpha1.MachineInPlaceUpdateSuccessful) // the agent was late
	case phase == v1alpha1.MachineInPlaceUpdateFailed && result != v1alpha1.UpdateResultSuccessful:
		if !r.keepsFailed && r.isOver(m, 5*time.Minute) {
			r.failed[m.UID] = true
			r.machines.delete(m, r.now) // it has failed permanently, and is replaced
		}
	case result == v1alpha1.UpdateResultSuccessful && stage != v1alpha1.NodeReasonUpdateSuccessful:
		r.setStage(node, v1alpha1.NodeReasonUpdateSuccessful)
	case result == v1alpha1.UpdateResultFailed && stage != v1alpha1.NodeReasonUpdateFailed:
		r.setStage(node, v1alpha1.NodeReasonUpdateFailed)
	case stage == v1alpha1.NodeReasonUpdateSuccessful && phase == v1alpha1.MachineInPlaceUpdating:
		r.setPhase(m, v1alpha1.MachineInPlaceUpdateSuccessful)
	case stage == v1alpha1.NodeReasonUpdateFailed && phase == v1alpha1.MachineInPlaceUpdating:
		r.setPhase(m, v1alpha1.MachineInPlaceUpdateFailed)
	case candidate && result == "" &&
		(stage == "" || stage == v1alpha1.NodeReasonUpdateSuccessful || stage == v1alpha1.NodeReasonUpdateFailed):
		r.setStage(node, v1alpha1.NodeReasonCandidateForUpdate)
	case stage == v1alpha1.NodeReasonCandidateForUpdate && node.Labels[v1alpha1.LabelSelectedForUpdate] == "true":
		r.setStage(node, v1alpha1.NodeReasonSelectedForUpdate)
	case stage == v1alpha1.NodeReasonSelectedForUpdate && phase == v1alpha1.MachineRunning:
		if r.isOver(m, time.Minute) { // its drain has ended
			r.setPhase(m, v1alpha1.MachineInPlaceUpdating)
		}
	case stage == v1alpha1.NodeReasonSelectedForUpdate && phase == v1alpha1.MachineInPlaceUpdating:
		r.setStage(node, v1alpha1.NodeReasonReadyForUpdate)
	case stage == v1alpha1.NodeReasonReadyForUpdate && result == "" && !r.hasDaemonFor(node):
		if r.isOver(m, 3*time.Minute) {
			r.agent(node)
		}
	}
}

// fallIll makes a machine unhealthy for some time.
func (r *rolling) fallIll() {
	machines := sorted(r.machines.now())
	if len(machines) == 0 {
		return
	}
	if m := machines[r.dice.IntN(len(machines))]; m.DeletionTimestamp == nil && m.Status.CurrentStatus.Phase == v1alpha1.MachineRunning {
		r.setPhase(m, v1alpha1.MachineUnknown)
	}
}

// isOver reports whether a step of a machine has taken its time. It takes no time where every order
// is tried.
func (r *rolling) isOver(m *v1alpha1.Machine, most time.Duration) bool {
	if r.instant {
		return true
	}
	end, begun := r.ends[m.UID+"-updates"]
	if !begun {
		r.ends[m.UID+"-updates"] = r.now.Add(time.Duration(1 + r.dice.Int64N(int64(most))))
		return false
	}
	if r.now.Before(end) {
		return false
	}
	delete(r.ends, m.UID+"-updates")
	return true
}

// agent updates the VM to the template for which its Node was selected, and reports the result.
func (r *rolling) agent(node *corev1.Node) {
	node = node.DeepCopy()
	if r.fails > 0 && r.dice.IntN(r.fails) == 0 {
		node.Labels[v1alpha1.LabelUpdateResult] = v1alpha1.UpdateResultFailed
		node.Annotations[v1alpha1.AnnotationUpdateFailedReason] = "no space left"
	} else {
		node.Labels[v1alpha1.LabelUpdateResult] = v1alpha1.UpdateResultSuccessful
		set, d := r.sets.now()[node.Annotations[v1alpha1.AnnotationUpdateTo]], r.deployment()
		switch {
		case set != nil && r.pool != nil: // the template names no configuration: the VM keeps that which its daemon has applied
		case set != nil:
			node.Annotations[has] = set.Spec.Template.Annotations["template"]
		case d != nil && d.DeletionTimestamp == nil:
			r.Fatalf("seed %d: %s is updated for the set %q, which does not exist:\n%s",
				r.seed, node.Name, node.Annotations[v1alpha1.AnnotationUpdateTo], r.tale())
		}
	}
	r.nodes.update(node)
}

func (r *rolling) setPhase(m *v1alpha1.Machine, phase v1alpha1.MachinePhase) {
	m = m.DeepCopy()
	m.Status.CurrentStatus = v1alpha1.CurrentStatus{Phase: phase, LastUpdateTime: metav1.NewTime(r.now)}
	r.machines.update(m)
}

func (r *rolling) setStage(node *corev1.Node, stage string) {
	node = node.DeepCopy()
	node.Status.Conditions = []corev1.NodeCondition{{Type: v1alpha1.NodeInPlaceUpdate, Status: corev1.ConditionTrue, Reason: stage}}
	if r.pool != nil {
		r.joinedStage(node, stage)
	}
	r.nodes.update(node)
}

// writeNodes makes the owner write Nodes.
func (r *rolling) writeNodes(w *rollout.World, desired []*corev1.Node) (goOn bool) {
	for _, node := range desired {
		stored, goOn := put(r, r.nodes, node)
		if !goOn {
			return false
		}
		w.Nodes[node.Name] = stored
	}
	return !r.chance(100)
}

// writeMachines makes the owner write machines.
func (r *rolling) writeMachines(w *rollout.World, desired []*v1alpha1.Machine) (goOn bool) {
	w.Live = nil
	for _, m := range desired {
		stored, goOn := put(r, r.machines, m)
		if !goOn {
			return false
		}
		for set, machines := range w.Machines {
			w.Machines[set] = slices.DeleteFunc(slices.Clone(machines), func(other *v1alpha1.Machine) bool { return other.UID == m.UID })
		}
		set := metav1.GetControllerOfNoCopy(stored).UID
		w.Machines[set] = append(w.Machines[set], stored)
	}
	return !r.chance(100)
}

// checkTemplates: a machine is of the template that its VM has, unless that is being changed. With
// a pool, a template that names no configuration fits all.
func (r *rolling) checkTemplates() {
	for _, m := range sorted(r.machines.now()) {
		node, there := r.nodes.now()[nodeName(m.Name)]
		if there && r.pool != nil && (r.isBeingApplied(node) || m.Annotations[fleetv1alpha1.AnnotationMachineConfig] == "") {
			continue
		}
		if there && m.DeletionTimestamp == nil && node.Labels[v1alpha1.LabelUpdateResult] == "" &&
			node.Annotations[has] != m.Annotations["template"] {
			r.Fatalf("seed %d: %s is of template %s and its VM has %s:\n%s",
				r.seed, m.Name, m.Annotations["template"], node.Annotations[has], r.tale())
		}
	}
}
