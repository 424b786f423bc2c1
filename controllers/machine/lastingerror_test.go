package machine

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/driver"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/apiserver"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/fakecloud"
)

// refuses has a cluster answer requests like "patch nodes" with an error, until it is mended.
func refuses(cluster *apiserver.Server, requests string, err error) (mend func()) {
	cluster.Refuse(requests, err)
	return func() { cluster.Fault(nil) }
}

func forbidden(resource string) error {
	return apierrors.NewForbidden(corev1.Resource(resource), "it", errors.New("the fleet may not"))
}

// runs creates a machine that runs.
func (b *bench) runs() {
	b.Helper()
	b.create()
	b.becomes(v1alpha1.MachineRunning, time.Minute)
}

// TestRefusedWritesAreReported has an API server refuse each of a machine's steps, a hundred times,
// and then none.
func TestRefusedWritesAreReported(t *testing.T) {
	const create, deletion, update = v1alpha1.MachineOperationCreate, v1alpha1.MachineOperationDelete, v1alpha1.MachineOperationUpdate
	for name, tc := range map[string]struct {
		before func(b *bench)
		refuse func(b *bench) (mend func())
		then   func(b *bench)
		op     v1alpha1.MachineOperationType
		state  v1alpha1.MachineState
		code   driver.Code
		phase  v1alpha1.MachinePhase
		event  string                // "" for none
		last   v1alpha1.MachinePhase // when it is mended; "" for gone
	}{
		"the Secret is not read": {
			refuse: func(b *bench) func() { return refuses(b.server, "get secrets", forbidden("secrets")) }, then: func(b *bench) { b.create() },
			op: create, state: v1alpha1.MachineStateFailed, code: driver.PermissionDenied, phase: v1alpha1.MachineCrashLoopBackOff,
			event: v1alpha1.EventCreateFailed, last: v1alpha1.MachineRunning,
		},
		"the class is not held": {
			refuse: func(b *bench) func() { return refuses(b.server, "patch machineclasses", forbidden("machineclasses")) },
			then:   func(b *bench) { b.create() }, op: create, state: v1alpha1.MachineStateFailed, code: driver.PermissionDenied,
			phase: v1alpha1.MachineCrashLoopBackOff, event: v1alpha1.EventCreateFailed, last: v1alpha1.MachineRunning,
		},
		"the token is not created": {
			refuse: func(b *bench) func() { return refuses(b.target, "create secrets", forbidden("secrets")) }, then: func(b *bench) { b.create() },
			op: create, state: v1alpha1.MachineStateFailed, code: driver.PermissionDenied, phase: v1alpha1.MachineCrashLoopBackOff,
			event: v1alpha1.EventCreateFailed, last: v1alpha1.MachineRunning,
		},
		"the token is not removed": {
			before: func(b *bench) {
				b.create()
				b.becomes(v1alpha1.MachinePending, time.Second)
			},
			refuse: func(b *bench) func() { return refuses(b.target, "* secrets", errors.New("no route to host")) }, then: func(*bench) {},
			op: create, state: v1alpha1.MachineStateFailed, code: driver.Unavailable, phase: v1alpha1.MachinePending,
			event: v1alpha1.EventCreateFailed, last: v1alpha1.MachineRunning,
		},
		"the Node is not claimed": {
			before: func(b *bench) {
				b.create()
				b.becomes(v1alpha1.MachinePending, time.Second)
			},
			refuse: func(b *bench) func() { return refuses(b.target, "patch nodes", forbidden("nodes")) }, then: func(*bench) {},
			op: create, state: v1alpha1.MachineStateFailed, code: driver.PermissionDenied, phase: v1alpha1.MachinePending,
			event: v1alpha1.EventCreateFailed, last: v1alpha1.MachineRunning,
		},
		"the Node is not written": {
			before: (*bench).runs, refuse: func(b *bench) func() { return refuses(b.target, "patch nodes", errors.New("no route to host")) },
			then: func(b *bench) { b.patchMachine(`{"spec":{"nodeTemplate":{"metadata":{"labels":{"pool":"a"}}}}}`) },
			op:   update, state: v1alpha1.MachineStateProcessing, code: driver.Unavailable, phase: v1alpha1.MachineRunning,
			last: v1alpha1.MachineRunning,
		},
		"the Node is not deleted": {
			before: (*bench).runs, refuse: func(b *bench) func() { return refuses(b.target, "delete nodes", forbidden("nodes")) },
			then: (*bench).delete, op: deletion, state: v1alpha1.MachineStateFailed, code: driver.PermissionDenied,
			phase: v1alpha1.MachineTerminating, event: v1alpha1.EventDeleteFailed,
		},
	} {
		t.Run(name, func(t *testing.T) {
			onBench(t, func(b *bench) {
				if tc.before != nil {
					tc.before(b)
				}
				mend := tc.refuse(b)
				reported := len(b.reported.List())
				tc.then(b)
				b.pass(bootTime + 3*reportAfter)
				m := b.get()
				if last := m.Status.LastOperation; last.Type != tc.op || last.State != tc.state || last.ErrorCode != tc.code.String() ||
					m.Status.CurrentStatus.Phase != tc.phase {
					t.Errorf("it is %s with %+v, want %s with %s %s %s", m.Status.CurrentStatus.Phase, last, tc.phase, tc.op, tc.state, tc.code)
				}
				b.touches()
				if again := b.get(); again.Status.LastOperation != m.Status.LastOperation {
					t.Errorf("it reports something else when it is tried again:\n%+v\n%+v", m.Status.LastOperation, again.Status.LastOperation)
				}
				want := []string{}
				if tc.event != "" {
					want = append(want, "Warning "+tc.event)
				}
				if got := withoutReceipts(b.reported.List()[reported:]); fmt.Sprint(got) != fmt.Sprint(want) {
					t.Errorf("Events %v, want %v", got, want)
				}
				mend()
				b.pass(2 * time.Minute)
				if m := b.get(); (m == nil) != (tc.last == "") || m != nil && m.Status.CurrentStatus.Phase != tc.last {
					t.Errorf("when that is mended it is %+v", m)
				}
				if m := b.get(); m != nil && m.Status.LastOperation.State != v1alpha1.MachineStateSuccessful {
					t.Errorf("after the correction it reports %+v", m.Status.LastOperation)
				}
			})
		})
	}
}

// A short failure is retried, and not reported.
func TestShortOutageOfAnAPIServerIsNotReported(t *testing.T) {
	onBench(t, func(b *bench) {
		mend := refuses(b.target, "create secrets", errors.New("no route to host"))
		b.create()
		b.pass(reportAfter / 2)
		mend()
		b.becomes(v1alpha1.MachineRunning, time.Minute)
		want := []string{"Normal " + v1alpha1.EventCreated, "Normal " + v1alpha1.EventJoined}
		if reported := b.reported.List(); !slices.Equal(reported, want) {
			t.Errorf("reported %v, want %v", reported, want)
		}
	})
}

// refusesInTurns has a cluster answer requests with one error after the other.
func refusesInTurns(cluster *apiserver.Server, requests string, all ...error) {
	cluster.Fault(func(r apiserver.Request) error {
		if r.What() == requests {
			return all[cluster.Count(requests)%len(all)]
		}
		return nil
	})
}

// A failing API server answers in several ways. Each is reported once, also by processes that take
// over.
func TestAlternatingErrorsAreReportedOnceEach(t *testing.T) {
	for name, tc := range map[string]struct {
		before func(b *bench)
		refuse func(b *bench, all ...error)
		then   func(b *bench)
		event  string
	}{
		"of a machine that is created": {
			refuse: func(b *bench, all ...error) { refusesInTurns(b.server, "get secrets", all...) },
			then:   func(b *bench) { b.create() }, event: v1alpha1.EventCreateFailed,
		},
		"of a machine that joins": {
			before: func(b *bench) {
				b.create(withoutDeadline)
				b.becomes(v1alpha1.MachinePending, time.Second)
			},
			refuse: func(b *bench, all ...error) { refusesInTurns(b.target, "patch nodes", all...) },
			then:   func(*bench) {}, event: v1alpha1.EventCreateFailed,
		},
		"of a machine that is being deleted": {
			before: (*bench).runs, refuse: func(b *bench, all ...error) { refusesInTurns(b.target, "delete nodes", all...) },
			then: (*bench).delete, event: v1alpha1.EventDeleteFailed,
		},
	} {
		t.Run(name, func(t *testing.T) {
			onBench(t, func(b *bench) {
				if tc.before != nil {
					tc.before(b)
				}
				tc.refuse(b, forbidden("it"), errors.New("no route to host"), apierrors.NewTimeoutError("too slow", 1))
				reported := len(b.reported.List())
				tc.then(b)
				b.pass(time.Minute)
				b.touches()
				want := slices.Repeat([]string{"Warning " + tc.event}, 3)
				if got := withoutReceipts(b.reported.List()[reported:]); !slices.Equal(got, want) {
					t.Errorf("Events %v, want %v", got, want)
				}
			})
		})
	}
}

// The autoscaler reads that there is no quota. A machine that waits for quota reports that until
// its next attempt.
func TestLackOfQuotaIsReportedUntilTheNextAttempt(t *testing.T) {
	onBench(t, func(b *bench) {
		b.limits.ResourceExhaustedRetry = time.Hour
		b.takeOver(0)
		b.cloud.Fail(fakecloud.Fault{Code: driver.ResourceExhausted}, driver.OpCreate)
		b.create()
		b.pass(time.Minute)
		first := b.get().Status.LastOperation
		mend := refuses(b.server, "get secrets", forbidden("secrets"))
		for range 10 {
			b.patchMachine(`{"metadata":{"annotations":{"touched":"` + time.Now().String() + `"}}}`)
			b.pass(time.Minute)
			if last := b.get().Status.LastOperation; last != first || last.ErrorCode != driver.ResourceExhausted.String() {
				t.Fatalf("it reports %+v, want %+v", last, first)
			}
		}
		b.pass(time.Hour)
		if last := b.get().Status.LastOperation; last.ErrorCode != driver.PermissionDenied.String() {
			t.Errorf("at the time of the next attempt it reports %+v", last)
		}
		mend()
		b.pass(2 * time.Minute)
		if last := b.get().Status.LastOperation; last.ErrorCode != driver.ResourceExhausted.String() {
			t.Errorf("after the next attempt it reports %+v", last)
		}
		if got, want := b.reported.List(), slices.Repeat([]string{"Warning " + v1alpha1.EventCreateFailed}, 2); !slices.Equal(got, want) {
			t.Errorf("Events %v, want %v", got, want)
		}
	})
}

// What an API server says may differ each time, as by the port of a connection. A text that is
// written brings the machine back, and that must not have it tried at once.
func TestChangingErrorTextsAreWrittenOnceAMinute(t *testing.T) {
	onBench(t, func(b *bench) {
		b.target.Fault(func(r apiserver.Request) error {
			if r.What() == "patch nodes" {
				return fmt.Errorf("read from port %d: connection reset by peer", min(b.target.Count("patch nodes"), 1000))
			}
			return nil
		})
		b.create(withoutDeadline)
		b.becomes(v1alpha1.MachinePending, time.Minute)
		b.server.Forget()
		b.pass(time.Hour)
		if tries, writes := b.target.Count("patch nodes"), b.server.Count("patch machines", "patch machines/status"); tries > 200 ||
			writes > 60 || writes < 30 {
			t.Errorf("in an hour the Node was tried %d times and the machine was written %d times", tries, writes)
		}
	})
}
