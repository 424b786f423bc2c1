package rollout

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/machinefacts"
)

// stallAfter is how long a rollout waits before the condition RolloutStalled reports what it waits
// for. Known failures are reported at once.
const stallAfter = time.Minute

// stalls finds the cause for which a rollout makes no progress.
type stalls struct{ *sets }

// stallCheck finds one cause. find returns the condition RolloutStalled for it, whose message has
// the object, the fact, and what the user does about it; none when the rollout does not stall for
// it.
type stallCheck struct {
	name string
	find func(stalls) machinefacts.Condition
}

// failureChecks find known failures, which are reported at once. The first check that finds a cause
// decides: a cause for all machines comes before one for a single machine, and what the user has
// set before what the cloud and the API server answer.
var failureChecks = []stallCheck{
	{"in-place update without target cluster", stalls.findNoTarget},
	{"in-place update failed", stalls.findFailedUpdate},
	{"new MachineSet frozen", stalls.findFrozen},
	{"machine creation failed", stalls.findFailedCreation},
	{"requests rejected by the API server", stalls.findRejected},
}

// waitChecks find what a rollout waits for, which is reported after stallAfter: most rollouts wait
// for each of these for a short while. The first check that finds a cause decides: the new machines
// come before the old ones, since old machines are deleted only when new ones are available.
var waitChecks = []stallCheck{
	{"new machine preserved", stalls.findPreserved},
	{"new machine not available", stalls.findUnavailable},
	{"machine terminating", stalls.findTerminating},
	{"new machines missing", stalls.findMissing},
	{"old MachineSet invalid", stalls.findInvalid},
	{"deletions held", stalls.findHeld},
	{"old machines not deleted", stalls.findNotDeleted},
	{"old machines not in the cache", stalls.findUncached},
	{"in-place update in progress", stalls.findUpdating},
	{"Nodes not selected", stalls.findNotSelected},
	{"old machine not ready for its in-place update", stalls.findNotSelectable},
}

// stillSince returns when the rollout last made progress; ok is false when there is no rollout, or
// Progressing has the cause.
func (s report) stillSince(st v1alpha1.MachineDeploymentStatus) (since time.Time, ok bool) {
	c := machinefacts.MachineDeploymentCondition(&st, v1alpha1.MachineDeploymentProgressing)
	if c == nil || s.d.Spec.Paused || s.d.DeletionTimestamp != nil {
		return time.Time{}, false
	}
	switch c.Reason {
	case v1alpha1.ReasonNewMachineSetAvailable, v1alpha1.ReasonMachineSetCreateError, v1alpha1.ReasonDeploymentPaused:
		return time.Time{}, false
	}
	return c.LastUpdateTime.Time, true
}

// stalled returns the condition RolloutStalled; none while the rollout makes progress, and while it
// has waited for less than stallAfter.
func (s report) stalled(st v1alpha1.MachineDeploymentStatus) machinefacts.Condition {
	since, ok := s.stillSince(st)
	if !ok {
		return machinefacts.Condition{}
	}
	checks := failureChecks
	if s.w.Now.Sub(since) >= stallAfter || reasonOf(st) == v1alpha1.ReasonProgressDeadlineExceeded {
		checks = slices.Concat(failureChecks, waitChecks)
	}
	for _, check := range checks {
		if cause := check.find(stalls(s)); cause != (machinefacts.Condition{}) {
			return cause
		}
	}
	return machinefacts.Condition{}
}

// howFar returns what an in-place update waits for.
func howFar(node *corev1.Node) string {
	switch {
	case node == nil || machinefacts.InPlaceStage(node) == "":
		return "its Node is not drained yet"
	case !hasBegun(node) && machinefacts.AwaitsComponents(node):
		return fmt.Sprintf("its Node has the taint %s, and no other Node is updated until the taint is removed; where no component removes it, "+
			"set the annotation %s=false on the MachineDeployment and remove the taint", v1alpha1.TaintCriticalComponentsNotReady, v1alpha1.AnnotationComponentsTaint)
	default:
		return fmt.Sprintf("its Node has the condition %s with the reason %s", v1alpha1.NodeInPlaceUpdate, machinefacts.InPlaceStage(node))
	}
}

// hasFailedInPlace reports whether the update of the machine's Node has failed.
func (s stalls) hasFailedInPlace(m *v1alpha1.Machine) bool {
	node := nodeOf(s.w.Nodes, m)
	return m.DeletionTimestamp == nil && (node != nil && node.Labels[v1alpha1.LabelUpdateResult] == v1alpha1.UpdateResultFailed ||
		m.Status.CurrentStatus.Phase == v1alpha1.MachineInPlaceUpdateFailed)
}

// hasFailedCreation reports whether the last attempt to create the machine has failed.
func hasFailedCreation(m *v1alpha1.Machine) bool {
	op := m.Status.LastOperation
	return m.DeletionTimestamp == nil && op.Type == v1alpha1.MachineOperationCreate && op.State == v1alpha1.MachineStateFailed
}

// standing returns how many machines of a set are not being deleted.
func (s stalls) standing(t *tally) (n int32) {
	for _, m := range s.w.Machines[t.set.UID] {
		if m.DeletionTimestamp == nil {
			n++
		}
	}
	return n
}

// first returns the first machine of a set, by name, for which a condition holds; nil when there is
// none.
func (s stalls) first(t *tally, matches func(*v1alpha1.Machine) bool) (found *v1alpha1.Machine) {
	if t == nil {
		return nil
	}
	for _, m := range s.w.Machines[t.set.UID] {
		if matches(m) && (found == nil || strings.Compare(m.Name, found.Name) < 0) {
			found = m
		}
	}
	return found
}

// firstOfAny returns the first machine for which a condition holds, those of the new set before the
// others.
func (s stalls) firstOfAny(matches func(*v1alpha1.Machine) bool) *v1alpha1.Machine {
	for _, t := range s.all() {
		if m := s.first(t, matches); m != nil {
			return m
		}
	}
	return nil
}
