package lifecycle

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/machinefacts"
)

// EvidenceFact is what the cloud has reported of the VM of a machine whose Node is unreachable. It
// is for people: no decision depends on it.
type EvidenceFact struct {
	// MayAsk reports whether the cloud may be asked: it was not since the machine is unhealthy, and
	// the limit on such calls allows one.
	MayAsk bool
	// Text is what it has reported; "" when it was not asked.
	Text string
}

// isUnreachable reports whether the machine is unhealthy because its Node is gone, or its kubelet
// does not report: it may be that the VM does not run.
func isUnreachable(w World) bool {
	if w.Machine.Status.CurrentStatus.Phase != v1alpha1.MachineUnknown || isForeign(w, w.Machine) {
		return false
	}
	if w.Node.State != NodePresent {
		return w.Node.State == NodeAbsent
	}
	ready := machinefacts.NodeCondition(w.Node.Node, corev1.NodeReady)
	return ready != nil && ready.Status == corev1.ConditionUnknown
}

// isEvidenceDue reports whether the cloud is to be asked for the VM of a machine whose Node is
// unreachable.
func isEvidenceDue(w World) bool {
	_, missing := missingForCloud(w)
	return w.Evidence.MayAsk && !w.Reach.Away && missing == "" && isUnreachable(w)
}

// shownEvidence returns what a text about a unreachable Node ends with: what the cloud has reported
// of its VM; "" when that is nothing.
func shownEvidence(w World) string {
	if w.Evidence.Text == "" || !isUnreachable(w) {
		return ""
	}
	return "; " + w.Evidence.Text
}

// EvidenceOf returns what the cloud has answered in this pass about the VM of a machine whose Node
// is unreachable, with the time; "" when that shows nothing.
func EvidenceOf(w World) string {
	exists := w.VM.State == VMPresent || w.VM.State == VMUninitialized
	var answer string
	switch {
	case w.Failure != nil:
		answer = fmt.Sprintf("did not report whether it has its VM (%s)", w.Failure.Code)
	case w.VM.State == VMAbsent:
		answer = "had no VM of this machine"
	case exists && w.VM.VM.State != "":
		answer = fmt.Sprintf("reported the state of its VM as %q", w.VM.VM.State)
	case exists:
		answer = "had its VM"
	default:
		return ""
	}
	return fmt.Sprintf("the cloud %s at %s", answer, w.Now.UTC().Format(time.RFC3339))
}
