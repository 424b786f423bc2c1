package lifecycle

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/machinefacts"
)

// waitWhileAway returns what of a verdict is done while an API server is away. No VM is created:
// its Node could not join, or its MachineSet could not be observed. No machine fails: its Node may
// have been healthy all the time. No VM is deleted whose Node may run pods, unless the machine has
// the label force-deletion or its drain has ended before. Nothing is requested from a server that
// does not answer; when it does again, every machine gets a pass.
func waitWhileAway(w World, v Verdict) Verdict {
	m := w.Machine
	isDeleted := m.DeletionTimestamp != nil
	if isDeleted && isForced(m) {
		return v
	}
	switch v.Do { //nolint:exhaustive // all others wait
	case Rest, Save:
		if !becomesFailed(w, v) {
			return v
		}
	case ReadSecret, AddFinalizers, FindVM, FindVMClaims, InitializeVM:
		return v
	case DeleteVM:
		if w.Drain.State.Ended() || w.VM.State == VMAbsent || w.VM.State == VMEnding {
			return v
		}
	case DeleteMachine:
		if m.Annotations[v1alpha1.AnnotationTriggerDeletion] == "true" {
			return v // its user has requested it, and not its Node
		}
	}
	if isDeleted {
		return reportAway(w)
	}
	return rest(0)
}

// mayLeaveTarget reports whether a machine is deleted without what it has in a target cluster that
// is not available, and may not exist any more: its user has requested that, or the cloud was never
// asked for a VM. Its Secret cannot be created again in a namespace that is being deleted. A
// bootstrap token expires.
func mayLeaveTarget(w World) bool {
	return w.TargetProblem != "" && w.Machine.DeletionTimestamp != nil && (isForced(w.Machine) || !mayHaveVM(w))
}

// isForced reports whether the user accepts that pods are lost.
func isForced(m *v1alpha1.Machine) bool {
	forced, _ := strconv.ParseBool(m.Labels[v1alpha1.LabelForceDeletion])
	return forced
}

// deletionWaits returns what a machine reports whose deletion waits for an API server.
func deletionWaits(w World) string {
	if w.TargetProblem != "" {
		return "Deletion pending: the target cluster is not available, so that the Node cannot be drained: " + w.TargetProblem +
			". To delete the VM without a drain, and leave the Node, set the label " + v1alpha1.LabelForceDeletion + "=true"
	}
	return "Deletion pending: the API server of the target cluster does not answer, so that the Node cannot be drained. " +
		"To delete the VM without a drain, set the label " + v1alpha1.LabelForceDeletion + "=true"
}

// nodeWaits returns what it reports when only its Node is left.
func nodeWaits(w World) string {
	if w.TargetProblem != "" {
		return "Deletion pending: the VM is deleted, and its Node is when the target cluster is available: " + w.TargetProblem +
			". To leave the Node, set the label " + v1alpha1.LabelForceDeletion + "=true"
	}
	return "Deletion pending: the VM is deleted, and its Node is when the API server of the target cluster answers"
}

// reportAway reports, once, that the deletion of a machine waits. What it records takes the place
// of the fact that the machine has not joined, as when a deletion begins.
func reportAway(w World) Verdict {
	m, last := w.Machine.DeepCopy(), w.Machine.Status.LastOperation
	noteToken(w, m)
	if w.VM.State == VMAbsent {
		setOperation(w,
			m, v1alpha1.LastOperation{Type: v1alpha1.MachineOperationDelete, State: v1alpha1.MachineStateProcessing, Description: nodeWaits(w)})
		return Verdict{Do: Rest, Machine: m}
	}
	op := v1alpha1.LastOperation{Type: v1alpha1.MachineOperationDelete, State: v1alpha1.MachineStateFailed, Description: deletionWaits(w)}
	setOperation(w, m, op)
	v := Verdict{Do: Rest, Machine: m}
	if last.Type != op.Type || last.State != op.State {
		v = v.with(v1alpha1.EventDrainBlocked, op.Description)
	}
	return v
}

// spreadOver is the time over which the machines of a target cluster begin anew after an outage, so
// that it is not met by all at once.
const spreadOver = 30 * time.Second

// Spread returns how long after an outage a machine begins anew: for each machine another time,
// below 30 s.
func Spread(uid types.UID) time.Duration {
	sum := fnv.New32a()
	_, _ = sum.Write([]byte(uid)) // never fails
	return time.Duration(sum.Sum32()%uint32(spreadOver/time.Millisecond)) * time.Millisecond
}

// isBeforeOutage reports whether the time since which the machine is in its phase includes an
// outage. Times of objects have full seconds.
func isBeforeOutage(w World) bool {
	back := w.Reach.Back.Truncate(time.Second)
	return !w.Reach.Back.IsZero() && w.Machine.Status.CurrentStatus.LastUpdateTime.Time.Before(back)
}

// isSettled reports whether the health that Nodes show may be acted on: this process has reached
// the API servers for long enough that the Nodes have reported, and the clock of the machine has
// begun anew after an outage.
func isSettled(w World) bool { return !w.Now.Before(w.Reach.Settled()) && !isBeforeOutage(w) }

// beginAnew begins the health timeout of an unhealthy machine anew after an outage, and records
// that, so that other replicas count from the same time.
func beginAnew(w World, m *v1alpha1.Machine) (v Verdict, decided bool) {
	if _, may := machinefacts.HealthDeadline(m, w.Limits.HealthTimeout); !may || !isBeforeOutage(w) {
		return Verdict{}, false
	}
	if due := w.Reach.Back.Add(Spread(m.UID)); w.Now.Before(due) {
		return Verdict{Do: Rest, Machine: m, Wake: until(w, due)}, true
	}
	m.Status.CurrentStatus.LastUpdateTime = metav1.NewTime(w.Now)
	setOperation(w, m, v1alpha1.LastOperation{
		Type: v1alpha1.MachineOperationHealthCheck, State: v1alpha1.MachineStateProcessing,
		Description: notReadyReason(w, m) +
			". The health timeout begins anew, because the API server or the target cluster was away, no replica ran, " +
			"or the namespace was switched off",
	})
	deadline, _ := machinefacts.HealthDeadline(m, w.Limits.HealthTimeout)
	return Verdict{Do: Rest, Machine: m, Wake: until(w, deadline)}, true
}

// extended returns a deadline of something that began at a time, without the time of an outage, and
// not before the Nodes have reported.
func extended(w World, since, deadline time.Time) time.Time {
	deadline = w.Reach.Extend(since, deadline)
	if settled := w.Reach.Settled(); deadline.Before(settled) {
		return settled
	}
	return deadline
}

// decideTargetless follows a machine that becomes no Node: when its VM is recorded, it is done.
func decideTargetless(w World) Verdict {
	if w.Machine.Status.CurrentStatus.Phase != v1alpha1.MachinePending {
		return rest(0)
	}
	m := w.Machine.DeepCopy() // it has waited for its Node while there was a target cluster
	becomeAvailable(w, m)
	return Verdict{Do: Rest, Machine: m}
}

// recordTargetless records the VM that exists now, with its addresses, which no Node has.
func recordTargetless(w World, m *v1alpha1.Machine) Verdict {
	addresses := slices.Clone(w.VM.Addresses)
	if name := w.VM.NodeName; name != "" {
		addresses = append(addresses, corev1.NodeAddress{Type: corev1.NodeHostName, Address: name})
	}
	m.Status.Addresses = joinAddresses(addresses)
	endBackoff(m)
	becomeAvailable(w, m)
	return Verdict{Do: Save, Machine: m}.with(v1alpha1.EventCreated,
		fmt.Sprintf("VM %s exists and is set up; there is no target cluster to join", m.Spec.ProviderID))
}

func becomeAvailable(w World, m *v1alpha1.Machine) {
	setPhase(w, m, v1alpha1.MachineAvailable, false)
	setOperation(w, m, v1alpha1.LastOperation{
		Type: v1alpha1.MachineOperationCreate, State: v1alpha1.MachineStateSuccessful, Description: "Created machine on cloud provider",
	})
}

// joinAddresses sorts addresses and leaves out duplicates.
func joinAddresses(addresses []corev1.NodeAddress) []corev1.NodeAddress {
	sorted := slices.SortedFunc(slices.Values(addresses), func(a, b corev1.NodeAddress) int {
		return cmp.Or(cmp.Compare(a.Type, b.Type), cmp.Compare(a.Address, b.Address))
	})
	return slices.Compact(sorted)
}
