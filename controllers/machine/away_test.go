package machine

import (
	"slices"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/target/reach"
)

// servers has what the process of a bench knows of the API server of the target cluster.
type servers struct {
	b *bench

	mu   sync.Mutex
	fact reach.Fact
}

// checksServers has the process of the bench know of the target's API server.
func (b *bench) checksServers() *servers {
	s := &servers{b: b}
	b.cluster.Reach = func() reach.Fact {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.fact
	}
	return s
}

// cut has the target cluster not answer, which the process knows 30 s later, until it is mended.
func (s *servers) cut() (mend func()) {
	from, mended := time.Now(), s.b.cutTarget()
	s.b.pass(30 * time.Second)
	s.set(reach.Fact{Away: true, From: from})
	return func() {
		mended()
		s.set(reach.Fact{From: from, Back: time.Now()})
	}
}

func (s *servers) set(fact reach.Fact) {
	s.mu.Lock()
	s.fact = fact
	s.mu.Unlock()
	s.b.process.ServerChanged(s.b.cluster)
}

// A machine whose API server is away is not deleted, however long that lasts, and is when the
// server is back.
func TestDeletionWaitsForTheServer(t *testing.T) {
	onBench(t, func(b *bench) {
		b.runs()
		s := b.checksServers()
		mend := s.cut()
		b.delete()
		b.pass(b.limits.Drain.Timeout + time.Hour)
		if now, _ := b.cloud.VMs(); now != 1 {
			t.Errorf("%d VMs exist, want the machine's", now)
		}
		asked := len(b.target.Requests())
		b.pass(time.Hour)
		if again := len(b.target.Requests()) - asked; again > 0 {
			t.Errorf("the server that is away got %d requests in an hour", again)
		}
		if last := b.get().Status.LastOperation; last.State != v1alpha1.MachineStateFailed || last.Type != v1alpha1.MachineOperationDelete {
			t.Errorf("it reports %+v", last)
		}
		if n := b.reported.Count(v1alpha1.EventReason{Reason: v1alpha1.EventDrainBlocked, Warning: true}); n != 1 {
			t.Errorf("%d Events DrainBlocked, want 1", n)
		}
		mend()
		b.pass(time.Minute)
		if now, _ := b.cloud.VMs(); now != 0 || b.get() != nil {
			t.Errorf("a minute after the outage %d VMs exist, and the machine is %v", now, b.get())
		}
		if forced := v1alpha1.EventDrainForced; slices.Contains(b.reported.List(), "Warning "+forced) {
			t.Error("its drain was forced because of the outage")
		}
	})
}

// The label force-deletion has it deleted without a drain.
func TestForcedDeletionDoesNotWaitForTheServer(t *testing.T) {
	onBench(t, func(b *bench) {
		b.runs()
		s := b.checksServers()
		_ = s.cut()
		b.delete()
		b.pass(time.Minute)
		b.patchMachine(`{"metadata":{"labels":{"` + v1alpha1.LabelForceDeletion + `":"true"}}}`)
		b.pass(time.Minute)
		if now, _ := b.cloud.VMs(); now != 0 {
			t.Errorf("%d VMs exist, want none", now)
		}
	})
}

// No VM is created while the server is away, and it is when the server is back.
func TestCreationWaitsForTheServer(t *testing.T) {
	onBench(t, func(b *bench) {
		s := b.checksServers()
		mend := s.cut()
		b.create()
		b.pass(time.Hour)
		if now, _ := b.cloud.VMs(); now != 0 {
			t.Errorf("%d VMs exist", now)
		}
		mend()
		b.becomes(v1alpha1.MachineRunning, time.Minute)
	})
}

// A machine whose Node was not ready when the server went away recovers, or has the whole health
// timeout after the outage.
func TestHealthTimeoutBeginsAnewAfterAnOutage(t *testing.T) {
	for name, recovers := range map[string]bool{"it recovers": true, "it does not": false} {
		t.Run(name, func(t *testing.T) {
			onBench(t, func(b *bench) {
				b.runs()
				s := b.checksServers()
				b.setReady(corev1.ConditionUnknown)
				b.becomes(v1alpha1.MachineUnknown, time.Minute)
				mend := s.cut()
				b.pass(time.Hour)
				if phase := b.get().Status.CurrentStatus.Phase; phase != v1alpha1.MachineUnknown {
					t.Errorf("it is %s while the server is away", phase)
				}
				mend()
				b.pass(40 * time.Second)
				if phase, since := b.get().Status.CurrentStatus.Phase, b.get().Status.CurrentStatus.LastUpdateTime; phase != v1alpha1.MachineUnknown ||
					time.Since(since.Time) > time.Minute {
					t.Errorf("40 s after the outage it is %s since %s", phase, since)
				}
				if recovers {
					b.setReady(corev1.ConditionTrue)
					b.becomes(v1alpha1.MachineRunning, time.Minute)
					return
				}
				b.pass(9 * time.Minute)
				if phase := b.get().Status.CurrentStatus.Phase; phase != v1alpha1.MachineUnknown {
					t.Errorf("before the health timeout it is %s", phase)
				}
				b.pass(2 * time.Minute)
				if phase := b.get().Status.CurrentStatus.Phase; phase != v1alpha1.MachineFailed {
					t.Errorf("after it, it is %s", phase)
				}
			})
		})
	}
}
