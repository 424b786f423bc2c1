package lifecycle

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machine/preserve"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/drainer/drain"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/target/reach"
)

// inPhase returns a machine that was created at 0, has been in a phase since 10, and is deleted at
// 20 if that is requested.
func inPhase(phase v1alpha1.MachinePhase, deleted bool) *v1alpha1.Machine {
	m := &v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: metav1.Unix(0, 0)}}
	m.Status.CurrentStatus = v1alpha1.CurrentStatus{Phase: phase, LastUpdateTime: metav1.Unix(10, 0)}
	if deleted {
		m.DeletionTimestamp = &metav1.Time{Time: time.Unix(20, 0)}
	}
	return m
}

func TestStageEnded(t *testing.T) {
	const none = v1alpha1.MachinePhase("")
	gone := []Event{{Reason: v1alpha1.EventDeleted}}
	for name, tc := range map[string]struct {
		before, after v1alpha1.MachinePhase
		deleted       bool
		events        []Event
		want          Stage
		since         int64
		failure       string
	}{
		"its VM is recorded": {before: none, after: v1alpha1.MachinePending},
		"it is tried again":  {before: none, after: v1alpha1.MachineCrashLoopBackOff},
		"it runs":            {before: v1alpha1.MachinePending, after: v1alpha1.MachineRunning, want: StageCreate},
		"it is available":    {before: none, after: v1alpha1.MachineAvailable, want: StageCreate},
		"it did not join": {
			before: v1alpha1.MachinePending, after: v1alpha1.MachineFailed, want: StageCreate, failure: "the machine has become Failed",
		},
		"it stays":          {before: v1alpha1.MachineRunning, after: v1alpha1.MachineRunning},
		"it fails later":    {before: v1alpha1.MachineRunning, after: v1alpha1.MachineFailed},
		"its update begins": {before: v1alpha1.MachineRunning, after: v1alpha1.MachineInPlaceUpdating},
		"its update ends": {
			before: v1alpha1.MachineInPlaceUpdating, after: v1alpha1.MachineInPlaceUpdateSuccessful, want: StageUpdate, since: 10,
		},
		"its update fails": {
			before: v1alpha1.MachineInPlaceUpdating, after: v1alpha1.MachineInPlaceUpdateFailed, want: StageUpdate, since: 10,
			failure: "the machine has become InPlaceUpdateFailed",
		},
		"its deletion goes on": {before: v1alpha1.MachineTerminating, after: v1alpha1.MachineTerminating, deleted: true},
		"it is gone": {
			before: v1alpha1.MachineTerminating, after: v1alpha1.MachineTerminating, deleted: true, events: gone, want: StageDelete, since: 20,
		},
		"it is deleted before it has run": {
			before: v1alpha1.MachinePending, after: v1alpha1.MachineTerminating, deleted: true, want: StageCreate,
			failure: "the machine has become Terminating",
		},
	} {
		stage, since, failure := StageEnded(inPhase(tc.before, tc.deleted), inPhase(tc.after, tc.deleted), tc.events)
		if stage != tc.want || failure != tc.failure || stage != "" && since.Unix() != tc.since {
			t.Errorf("%s: %q since %s, %q; want %q since %d, %q", name, stage, since, failure, tc.want, tc.since, tc.failure)
		}
	}
}

func TestWaits(t *testing.T) {
	for _, tc := range []struct {
		want string
		w    World
	}{
		{"an API server that is away", World{Machine: inPhase(v1alpha1.MachineRunning, false), Reach: reach.Fact{Away: true}}},
		{"a drain", World{Machine: inPhase(v1alpha1.MachineTerminating, true), Drain: drain.Report{State: drain.Draining}}},
		{"the circuit breaker of the account", World{Machine: inPhase(v1alpha1.MachineCrashLoopBackOff, false), Failure: &Failure{Held: true}}},
		{"a drain that is blocked", World{
			Machine: inPhase(v1alpha1.MachineRunning, false), UpdateDrain: drain.Report{State: drain.Draining, IsStuck: true},
		}},
		{"the end of the VM", World{
			Machine: with(inPhase(v1alpha1.MachineTerminating, true), v1alpha1.FinalizerName), VM: VMFact{State: VMEnding},
		}},
		{"the update in place", World{Machine: inPhase(v1alpha1.MachineInPlaceUpdating, false)}},
		{"a Node to appear", World{Machine: inPhase(v1alpha1.MachinePending, false)}},
		{"a healthy Node", World{Machine: inPhase(v1alpha1.MachinePending, false), Node: NodeFact{State: NodePresent}}},
		{"an unhealthy Node to recover", World{Machine: inPhase(v1alpha1.MachineUnknown, false), Limits: Limits{HealthTimeout: time.Hour}}},
		{"the disruption budget", World{Machine: inPhase(v1alpha1.MachineUnknown, false), Limits: Limits{HealthTimeout: time.Minute}}},
		{"", World{Machine: inPhase(v1alpha1.MachineRunning, false)}},
		{"the next call of the cloud after a failure", World{Machine: retrying()}},
		{"a drain", World{Machine: inPhase(v1alpha1.MachineFailed, false), PreservedDrain: PreservedDrain{State: preserve.DrainRunning}}},
		{"a drain that is blocked", World{
			Machine: inPhase(v1alpha1.MachineFailed, false), PreservedDrain: PreservedDrain{State: preserve.DrainFailed},
		}},
		{"the next request to an API server after a failure", World{
			Machine: inPhase(v1alpha1.MachineCrashLoopBackOff, false), PassError: &PassError{},
		}},
		{"a correction by a user", World{Machine: inPhase(v1alpha1.MachineCrashLoopBackOff, false)}},
		{"the end of the VM", World{Machine: inPhase("", false), VM: VMFact{State: VMEnding}}},
		{"a correction by a user", World{Machine: with(inPhase(v1alpha1.MachineTerminating, true), v1alpha1.FinalizerName)}},
		{"the finalizers of other clients", World{Machine: with(inPhase(v1alpha1.MachineTerminating, true), "other")}},
		{"", World{Machine: inPhase(v1alpha1.MachineTerminating, true)}},
		{"its deletion", World{Machine: inPhase(v1alpha1.MachineFailed, false)}},
		{"the end of a preservation", World{Machine: preservedUntil(400)}},
		{"its deletion", World{Machine: preservedUntil(200)}},
		{"a healthy Node", World{Machine: inPhase(v1alpha1.MachineInPlaceUpdateSuccessful, false)}},
		{"a correction by a user", World{Machine: inPhase(v1alpha1.MachineInPlaceUpdateFailed, false), Limits: Limits{HealthTimeout: time.Hour}}},
		{"a correction by a user", World{Machine: inPhase(v1alpha1.MachineRunning, false), Node: NodeFact{Refused: "no"}}},
		{"the time to uncordon the Node", World{Machine: uncordonedAt("1970-01-01T00:06:00Z")}},
		{"", World{Machine: uncordonedAt("1970-01-01T00:04:00Z")}},
	} {
		tc.w.Now = time.Unix(300, 0)
		if got := Waits(tc.w, Verdict{Do: Rest}); got != tc.want {
			t.Errorf("a machine in phase %q waits for %q, want %q", tc.w.Machine.Status.CurrentStatus.Phase, got, tc.want)
		}
	}
	w := World{Now: time.Unix(300, 0), Machine: inPhase(v1alpha1.MachineRunning, false), Node: NodeFact{RestUntil: time.Unix(316, 0)}}
	if v := write(w, rest(0), PatchNode, nil); v.Do != Rest || v.Wake != 16*time.Second || Waits(w, v) != "the limit of writes of the Node" {
		t.Errorf("%s, waits %s for %q, want 16 s for the limit of writes", v.Do, v.Wake, Waits(w, v))
	}
}

// retrying returns a machine for which the cloud is not called before 305.
func retrying() *v1alpha1.Machine {
	m := inPhase(v1alpha1.MachineCrashLoopBackOff, false)
	m.Annotations = map[string]string{v1alpha1.AnnotationBackoff: `{"at":"1970-01-01T00:05:05Z"}`}
	return m
}

func with(m *v1alpha1.Machine, finalizer string) *v1alpha1.Machine {
	m.Finalizers = []string{finalizer}
	return m
}

// preservedUntil returns a failed machine.
func preservedUntil(seconds int64) *v1alpha1.Machine {
	m := inPhase(v1alpha1.MachineFailed, false)
	m.Status.CurrentStatus.PreserveExpiryTime = &metav1.Time{Time: time.Unix(seconds, 0)}
	return m
}

// uncordonedAt returns a machine whose Node is uncordoned at a time.
func uncordonedAt(at string) *v1alpha1.Machine {
	m := inPhase(v1alpha1.MachineRunning, false)
	m.Annotations = map[string]string{v1alpha1.AnnotationUncordonAt: at}
	return m
}
