package lifecycle

import (
	"fmt"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/driver"
)

// nodeCheck decides one question about the Node of a machine that has a VM. decide returns false
// where the next check decides.
type nodeCheck struct {
	name   string
	decide func(World) (v Verdict, decided bool)
}

// nodeChecks follow a machine from its VM to a healthy Node, and afterwards the health of that
// Node. The first check that decides ends the list, so each may rely on what those before it have
// established: the Node exists, is the machine's, stays, carries the labels by which it is watched,
// and is not being updated.
var nodeChecks = []nodeCheck{
	{"joined", checkJoined},
	{"owner known", findOwner},
	{"own", checkForeign},
	{"not deleted", checkDeleted},
	{"claimed", checkClaimed},
	{"not given up", checkGivenUp},
	{"not updated in place", checkUpdate},
	{"set up", checkSetUp},
	{"token deleted", checkToken},
	{"healthy", checkHealthy},
	{"unhealthy", checkUnhealthy},
}

// decideHealth decides from the Node of a machine that has a VM. A Node that never was healthy, or
// is not healthy again, has no check that decides: it is awaited until the deadline of the
// machine's phase.
func decideHealth(w World) Verdict {
	for _, check := range nodeChecks {
		if v, decided := check.decide(w); decided {
			return v
		}
	}
	return waitForNode(w, observed(w))
}

// observed returns the machine with the conditions of its Node.
func observed(w World) *v1alpha1.Machine {
	m := w.Machine.DeepCopy()
	mirror(m, w.Node.Node)
	return m
}

// isHealthy reports whether the Node is healthy.
func isHealthy(w World) bool {
	_, healthy := health(w)
	return healthy
}

// checkJoined decides while the Node does not exist, or is not known to. The cache alone proves
// nothing: before the absence of a Node has an effect it is read from the API server.
func checkJoined(w World) (v Verdict, decided bool) {
	switch w.Node.State {
	case NodeNamed:
		return do(FindNode), true
	case NodeUnseen:
		if w.Machine.Status.CurrentStatus.Phase == v1alpha1.MachineRunning || isOverdue(w) || isUpdateOverdue(w) || isToBeGivenUp(w) ||
			isLookDue(w) {
			return do(FindNode), true
		}
		return waitForNode(w, w.Machine.DeepCopy()), true
	case NodeAbsent:
		return nodeMissing(w), true
	case NodePresent:
	}
	return Verdict{}, false
}

// checkForeign decides when another VM has joined under the name of the machine's Node.
func checkForeign(w World) (v Verdict, decided bool) {
	if !isForeign(w, w.Machine) {
		return Verdict{}, false
	}
	return nodeForeign(w), true
}

// checkDeleted decides when the Node is being deleted: its machine is deleted with it. The
// finalizer on the Node keeps it until the VM has been deleted.
func checkDeleted(w World) (v Verdict, decided bool) {
	if w.Node.Node.DeletionTimestamp == nil {
		return Verdict{}, false
	}
	return Verdict{Do: DeleteMachine, Why: whyNodeDeleted(w.Node.Node)}.with(v1alpha1.EventNodeDeleted,
		fmt.Sprintf("Node %q is being deleted; deleting its machine, too", w.Node.Node.Name)), true
}

// checkClaimed decides while the Node is not claimed. It comes before all checks of the Node's
// health, since without the slot label no replica watches the Node.
func checkClaimed(w World) (v Verdict, decided bool) {
	if isClaimed(w) {
		return Verdict{}, false
	}
	return do(ClaimNode), true
}

// checkGivenUp decides when the machine has failed and is being replaced: a Node that recovers does
// not change that.
func checkGivenUp(w World) (v Verdict, decided bool) {
	if !isGivenUp(w) {
		return Verdict{}, false
	}
	return Verdict{Do: Rest, Machine: observed(w)}, true
}

// checkToken decides when the Node is healthy and the bootstrap token with which it joined may
// exist. The token is deleted before the machine is recorded as joined, since it is not looked for
// afterwards.
func checkToken(w World) (v Verdict, decided bool) {
	if !isHealthy(w) || w.Machine.Status.CurrentStatus.Phase == v1alpha1.MachineRunning || !mayHaveToken(w) {
		return Verdict{}, false
	}
	return do(DropToken), true
}

// checkHealthy decides when the Node is healthy: for the first time, again, or as before.
func checkHealthy(w World) (v Verdict, decided bool) {
	switch {
	case !isHealthy(w):
		return Verdict{}, false
	case w.Machine.Status.CurrentStatus.Phase != v1alpha1.MachineRunning:
		return becameHealthy(w, observed(w)), true
	}
	return Verdict{Do: Rest, Machine: observed(w)}, true
}

// checkUnhealthy decides when the Node of a running machine is not healthy any more.
func checkUnhealthy(w World) (v Verdict, decided bool) {
	reason, healthy := health(w)
	if healthy || w.Machine.Status.CurrentStatus.Phase != v1alpha1.MachineRunning {
		return Verdict{}, false
	}
	return becameUnhealthy(w, observed(w), fmt.Sprintf("Node %q is not healthy: %s", w.Node.Node.Name, reason)), true
}

// nodeMissing is for a machine whose Node does not exist. One that has not joined yet continues to
// wait for it.
func nodeMissing(w World) Verdict {
	m := w.Machine.DeepCopy()
	if m.Status.CurrentStatus.Phase != v1alpha1.MachineRunning {
		return waitForNode(w, m)
	}
	return becameUnhealthy(w, m, fmt.Sprintf("Node %q does not exist any more", NodeName(m)))
}

// nodeForeign is for a machine under whose Node's name another VM has joined. A machine that has
// run becomes unhealthy, as for any other cause: the cause may pass, and it may concern many
// machines.
func nodeForeign(w World) Verdict {
	m := w.Machine.DeepCopy()
	switch m.Status.CurrentStatus.Phase { //nolint:exhaustive // all others have run
	case v1alpha1.MachineFailed:
		return rest(0) // it has failed already
	case v1alpha1.MachinePending:
		if isNameless(w.Node.Node) {
			return awaitProviderID(w, m)
		}
		return failCreate(w, m, driver.Internal, foreignNodeMessage(m, w.Node.Node))
	case v1alpha1.MachineRunning:
		return becameUnhealthy(w, m, notReadyReason(w, m))
	}
	return waitForNode(w, m)
}
