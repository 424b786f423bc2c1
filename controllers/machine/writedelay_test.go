package machine

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/pacing"
)

// writes counts the writes of the machine.
func (b *bench) writes() (n int) {
	for _, r := range b.server.Requests() {
		if r.Verb == "patch" && r.Resource == "machines" {
			n++
		}
	}
	return n
}

// flaps flips Ready fifty times a second for 12 s.
func (b *bench) flaps() {
	b.Helper()
	for range 300 {
		b.setReady(corev1.ConditionTrue)
		b.pass(20 * time.Millisecond)
		b.setReady(corev1.ConditionFalse)
		b.pass(20 * time.Millisecond)
	}
}

// While its Node is drained, a machine has the Node's conditions, with as few writes.
func TestANodeThatFlapsDuringItsDrainIsFollowedNowAndThen(t *testing.T) {
	onBench(t, func(b *bench) {
		b.addBlockingBudget()
		b.drainBegins(time.Hour, func() { b.pod("web", labelled("held")) })
		b.reportsSoon("held by PodDisruptionBudget a/never")
		b.pass(2 * time.Minute)
		before := b.writes()
		b.setReady(corev1.ConditionUnknown)
		b.pass(0)
		if got := b.readyIs(); got != corev1.ConditionUnknown {
			t.Errorf("Ready of the machine is %s at once, want that of its Node", got)
		}
		b.flaps()
		if got, most := b.writes()-before, pacing.MachineBurst+int(12*time.Second/pacing.MachineInterval)+1; got > most {
			t.Errorf("%d writes in 12 s, want at most %d", got, most)
		}
		b.setReady(corev1.ConditionTrue)
		b.pass(pacing.MachineInterval)
		if got := b.readyIs(); got != corev1.ConditionTrue {
			t.Errorf("Ready of the machine is %s in the end", got)
		}
	})
}

// readyIs returns the status of the condition Ready of the machine.
func (b *bench) readyIs() corev1.ConditionStatus {
	for _, c := range b.get().Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status
		}
	}
	return ""
}

// A kubelet flips Ready fifty times a second for 12 s. The machine follows the first change at
// once, then it is written now and then, and in the end it says what is.
func TestANodeThatFlapsIsFollowedNowAndThen(t *testing.T) {
	onBench(t, func(b *bench) {
		b.runs()
		b.pass(2 * time.Minute)
		before, events := b.writes(), len(b.reported.List())
		b.setReady(corev1.ConditionFalse)
		if took := b.becomes(v1alpha1.MachineUnknown, time.Second); took > 0 {
			t.Errorf("the first change is followed after %s", took)
		}
		b.flaps()
		most := pacing.MachineBurst + int(12*time.Second/pacing.MachineInterval) + 1
		if got := b.writes() - before; got > most {
			t.Errorf("%d writes in 12 s, want at most %d", got, most)
		}
		if got := len(b.reported.List()) - events; got > most {
			t.Errorf("%d Events in 12 s, want at most %d", got, most)
		}
		b.setReady(corev1.ConditionTrue)
		b.pass(pacing.MachineInterval)
		if phase := b.get().Status.CurrentStatus.Phase; phase != v1alpha1.MachineRunning {
			t.Errorf("in the end it is %s", phase)
		}
		b.pass(2 * time.Minute)
		b.setReady(corev1.ConditionFalse)
		if took := b.becomes(v1alpha1.MachineUnknown, time.Second); took > 0 {
			t.Errorf("when it is quiet again a change is followed after %s", took)
		}
	})
}
