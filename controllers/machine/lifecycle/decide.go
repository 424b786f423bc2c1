package lifecycle

import (
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/driver"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/bounded"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/machinefacts"
)

// Decide returns what to do next. It is total: every world has a verdict.
func Decide(w World) Verdict {
	w.NoTarget = w.NoTarget || mayLeaveTarget(w)
	w.Reach.Away = w.Reach.Away || w.TargetProblem != "" && !w.NoTarget
	v := decide(w)
	if !w.Reach.Away {
		return v
	}
	if v = waitWhileAway(w, v); w.TargetProblem != "" && v.Do == Rest {
		v.Wake = machinefacts.Sooner(v.Wake, machinefacts.TargetRecheck)
	}
	return v
}

// decide returns what to do while all API servers answer.
func decide(w World) Verdict {
	switch {
	case w.PassError != nil:
		return reportPassError(w)
	case isMisnamed(w):
		return nameNode(w)
	case w.Machine.DeletionTimestamp != nil:
		return explained(w, decideDelete(w))
	case !hasFinalizer(w.Machine):
		return begin(w)
	case isToBeDeleted(w):
		return Verdict{Do: DeleteMachine, Why: whyTriggered(w), Events: deletionAskedFor()}
	case isBeingCreated(w):
		return preserved(w, decideCreate(w))
	case w.NoTarget:
		return preserved(w, decideTargetless(w))
	default:
		return updateNode(w, decideHealth(w))
	}
}

// isBeingCreated reports whether the VM, or what the machine records of it, is not complete.
// Nothing is created any more for a machine that has failed.
func isBeingCreated(w World) bool {
	m := w.Machine
	phase := m.Status.CurrentStatus.Phase
	incomplete := m.Spec.ProviderID == "" || NodeName(m) == "" && !w.NoTarget || phase == "" || phase == v1alpha1.MachineCrashLoopBackOff
	return incomplete && phase != v1alpha1.MachineFailed
}

// NodeName returns the name of the machine's Node; "" when it is not known yet.
func NodeName(m *v1alpha1.Machine) string { return m.Labels[v1alpha1.LabelNode] }

func hasFinalizer(m *v1alpha1.Machine) bool {
	return slices.Contains(m.Finalizers, v1alpha1.FinalizerName)
}

// creationDeadline returns when a machine that is not a healthy Node by then has failed.
func creationDeadline(w World) time.Time {
	return extended(w, w.Machine.CreationTimestamp.Time, machinefacts.CreationDeadline(w.Machine, w.Limits.CreationTimeout))
}

// setPhase enters a phase; entering the one that the machine is in changes nothing.
func setPhase(w World, m *v1alpha1.Machine, phase v1alpha1.MachinePhase, timeoutActive bool) {
	s := &m.Status.CurrentStatus
	if s.Phase != phase {
		s.LastUpdateTime = metav1.NewTime(w.Now)
	}
	s.Phase, s.TimeoutActive = phase, timeoutActive
}

// setOperation records what was done, or tried. The time is kept while type, state and code are, so
// that it shows since when a failure lasts.
func setOperation(w World, m *v1alpha1.Machine, op v1alpha1.LastOperation) {
	old := m.Status.LastOperation
	op.LastUpdateTime, op.Description = metav1.NewTime(w.Now), bounded.Text(op.Description, bounded.Message)
	if old.Type == op.Type && old.State == op.State && old.ErrorCode == op.ErrorCode {
		op.LastUpdateTime = old.LastUpdateTime
	}
	m.Status.LastOperation = op
}

// failedWith reports whether the machine's last operation is a failure of that kind and code
// already.
func failedWith(m *v1alpha1.Machine, op v1alpha1.MachineOperationType, code driver.Code) bool {
	last := m.Status.LastOperation
	return last.Type == op && last.State == v1alpha1.MachineStateFailed && last.ErrorCode == code.String()
}

// until is the time left to t, and at least a moment, so that no deadline is missed.
func until(w World, t time.Time) time.Duration { return max(t.Sub(w.Now), time.Millisecond) }
