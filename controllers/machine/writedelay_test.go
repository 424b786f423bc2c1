package machine

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/rates"
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

// A kubelet flips Ready fifty times a second for 12 s. The machine follows the first change at once, then it is written now and then,
// and in the end it says what is.
func TestANodeThatFlapsIsFollowedNowAndThen(t *testing.T) {
	onBench(t, func(b *bench) {
		b.runs()
		b.pass(2 * time.Minute)
		before, events := b.writes(), len(b.reported.List())
		b.setReady(corev1.ConditionFalse)
		if took := b.becomes(v1alpha1.MachineUnknown, time.Second); took > 0 {
			t.Errorf("the first change is followed after %s", took)
		}
		for range 300 {
			b.setReady(corev1.ConditionTrue)
			b.pass(20 * time.Millisecond)
			b.setReady(corev1.ConditionFalse)
			b.pass(20 * time.Millisecond)
		}
		most := rates.MachineBurst + int(12*time.Second/rates.MachineInterval) + 1
		if got := b.writes() - before; got > most {
			t.Errorf("%d writes in 12 s, want at most %d", got, most)
		}
		if got := len(b.reported.List()) - events; got > most {
			t.Errorf("%d Events in 12 s, want at most %d", got, most)
		}
		b.setReady(corev1.ConditionTrue)
		b.pass(rates.MachineInterval)
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
