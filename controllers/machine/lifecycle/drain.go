package lifecycle

import (
	"encoding/json"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machine/preserve"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/drainer/drain"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/machinefacts"
)

// setTerminating records on the Node that its machine is being deleted, before anything else does:
// only until then does the phase show why. wait is false when it is recorded, or cannot be.
func setTerminating(w World) (v Verdict, wait bool) {
	if w.Drain.State != drain.Unknown { // the deletion does not wait for a target cluster that does not answer
		return Verdict{}, false
	}
	switch toFind, has := drainable(w); {
	case toFind == FindVM:
		return Verdict{}, false // the drain asks the cloud, once the machine records its deletion
	case toFind != "":
		return do(toFind), true
	case !has || machinefacts.IsTerminating(w.Node.Node):
		return Verdict{}, false
	}
	return do(SetTerminating), true
}

// NodeReason returns the reason of the condition that a Node has while its machine is being
// deleted.
func NodeReason(m *v1alpha1.Machine) string {
	if m.Status.CurrentStatus.Phase == v1alpha1.MachineFailed {
		return v1alpha1.NodeReasonUnhealthy
	}
	return v1alpha1.NodeReasonScaleDown
}

// drainable reports whether the machine has a Node that has to be drained; toFind names what has to
// be found out first. There is none when the VM is being deleted already.
func drainable(w World) (toFind Action, has bool) {
	if w.NoTarget || w.Machine.Spec.ProviderID == "" && NodeName(w.Machine) == "" || w.VM.State == VMAbsent || w.VM.State == VMEnding {
		return "", false
	}
	switch w.Node.State {
	case NodeUnseen, NodeNamed:
		return FindNode, false
	case NodeAbsent:
		return "", false
	case NodePresent:
	}
	owns, toFind := ownsNode(w, w.Machine)
	return toFind, owns
}

// drainNode drains the Node before its VM is deleted; wait is false when the VM may be deleted.
func drainNode(w World) (v Verdict, wait bool) {
	switch {
	case w.Drain.State.Ended():
		return reportEnd(w)
	case w.Drain.State == drain.Draining:
		return reportProgress(w), true
	}
	switch toFind, has := drainable(w); {
	case toFind == FindVM:
		_, isLater := waiting(w)
		_, missing := missingForCloud(w)
		switch {
		case missing != "" || isLater || isSearchOver(w):
			return Verdict{}, false // removeVM reports that, and waits, or goes on
		case !w.Secret.Read:
			return do(ReadSecret), true
		}
		return do(FindVM), true
	case toFind != "":
		return do(toFind), true
	case !has:
		return Verdict{}, false
	case NodeName(w.Machine) == "":
		return nameNode(w), true
	}
	return do(DrainNode), true
}

// nameNode records the name of the Node of a machine that has lost it, names another one, or was
// given a VM by its user.
func nameNode(w World) Verdict {
	m := w.Machine.DeepCopy()
	if m.Labels == nil {
		m.Labels = map[string]string{}
	}
	m.Labels[v1alpha1.LabelNode] = w.Node.Node.Name
	return Verdict{Do: Save, Machine: m}
}

// forceDrainIgnored is the remark on a machine whose user expects the label to end the drain of a
// deletion.
const forceDrainIgnored = "; the label " + v1alpha1.LabelForceDrain + " has no effect on a deletion; set " + v1alpha1.LabelForceDeletion +
	"=true to end the drain by force"

// reportProgress rests until the drain continues, and reports its progress and the conditions of
// the Node.
func reportProgress(w World) Verdict {
	if w.Drain.Text == "" {
		return rest(w.Drain.Wake)
	}
	m, last := w.Machine.DeepCopy(), w.Machine.Status.LastOperation
	op := v1alpha1.LastOperation{Type: v1alpha1.MachineOperationDelete, State: v1alpha1.MachineStateProcessing, Description: w.Drain.Text}
	if _, missing := missingForCloud(w); missing != "" {
		op.Description += "; after that the VM cannot be deleted: " + missing
	}
	if _, isLabeled := m.Labels[v1alpha1.LabelForceDrain]; isLabeled && !isForced(m) {
		op.Description += forceDrainIgnored
	}
	if w.Node.State == NodePresent {
		mirror(m, w.Node.Node)
	}
	v := Verdict{Do: Rest, Machine: m, Wake: w.Drain.Wake}
	if w.Drain.IsStuck {
		op.State = v1alpha1.MachineStateFailed
		if last.Type != op.Type || last.State != op.State {
			v = v.with(v1alpha1.EventDrainBlocked, op.Description)
		}
	}
	setOperation(w, m, op)
	return v
}

// PreservedDrainOf returns how far the drain of a preserved machine's Node is, and what was
// reported of it.
func PreservedDrainOf(now time.Time, reported drain.Reported, v drain.Verdict) (PreservedDrain, drain.Reported) {
	var report drain.Report
	switch {
	case v.Do != drain.Rest:
		report = reported.Again()
	case !v.State.Ended():
		reported, report = reported.Next(now, v)
	case v.State == drain.Drained:
		return PreservedDrain{State: preserve.DrainDone}, reported
	case v.Progress.Left == 0:
		return PreservedDrain{State: preserve.DrainForced, Text: "The cause: " + v.Cause.String() + "."}, reported
	default:
		report = drain.Report{Text: v.Progress.String(), IsStuck: true, Wake: drain.UndrainedPause}
	}
	p := PreservedDrain{State: preserve.DrainRunning}
	if report.IsStuck {
		p.State, p.Text = preserve.DrainFailed, report.Text+"."
	}
	if report.Wake > 0 {
		p.Again = now.Add(report.Wake)
	}
	return p, reported
}

// wasAfterVM reports whether the VM, or what is needed to delete it, was requested before: the
// drain had ended by then, and its end was reported.
func wasAfterVM(w World) bool {
	last := w.Machine.Status.LastOperation
	return len(readBackoff(w).Codes) > 0 || last.Type == v1alpha1.MachineOperationDelete && last.ErrorCode != ""
}

// reportEnd reports how the drain has ended, where there was something to drain.
func reportEnd(w World) (v Verdict, wait bool) {
	if !w.Drain.Ending || w.Machine.Status.LastOperation.Description == w.Drain.Text || wasAfterVM(w) {
		return Verdict{}, false
	}
	m := w.Machine.DeepCopy()
	setOperation(w, m, v1alpha1.LastOperation{
		Type: v1alpha1.MachineOperationDelete, State: v1alpha1.MachineStateProcessing, Description: w.Drain.Text,
	})
	reason := v1alpha1.EventDrained
	if w.Drain.State != drain.Drained {
		reason = v1alpha1.EventDrainForced
	}
	return Verdict{Do: Save, Machine: m}.with(reason, w.Drain.Text), true
}

// autoscalerManager begins the name under which the API server records what the cluster-autoscaler
// has written: client-go takes that name from the one of the program.
const autoscalerManager = "cluster-autoscaler"

// findCordon reports whether the Node has to be read from the API server before it is uncordoned:
// who has cordoned it stands in metadata.managedFields, which caches do not keep.
func findCordon(w World, node *corev1.Node) bool {
	at, asked := uncordonAt(w.Machine)
	return asked && !w.Now.Before(at) && node.Spec.Unschedulable && !w.Node.Live
}

// isCordonedByAutoscaler reports whether the API server has recorded that the cluster-autoscaler,
// and no other client, has cordoned the Node. A cordon of unknown origin counts as a user's.
func isCordonedByAutoscaler(node *corev1.Node) bool {
	found := false
	for _, entry := range node.ManagedFields {
		if !hasCordoned(entry) {
			continue
		}
		if !strings.HasPrefix(entry.Manager, autoscalerManager) {
			return false
		}
		found = true
	}
	return found && node.Spec.Unschedulable
}

// hasCordoned reports whether a client has set spec.unschedulable of a Node. No client sets it to
// false: false is its absence.
func hasCordoned(entry metav1.ManagedFieldsEntry) bool {
	var fields struct {
		Spec struct {
			Unschedulable *struct{} `json:"f:unschedulable"`
		} `json:"f:spec"`
	}
	return entry.FieldsV1 != nil && json.Unmarshal(entry.FieldsV1.GetRawBytes(), &fields) == nil && fields.Spec.Unschedulable != nil
}
