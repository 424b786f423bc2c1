package machine

import (
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/driver"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/apiserver"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/fakecloud"
)

// loses has the process die at its write of machines with that number, counted from now: neither
// that nor anything after it arrives. Another process continues at once. It reports whether there
// were so many writes in the time.
func (b *bench) loses(write int, within time.Duration) bool {
	b.Helper()
	var left atomic.Int64
	var dead atomic.Bool
	left.Store(int64(write))
	b.server.Fault(func(r apiserver.Request) error {
		if r.Resource == "machines" && r.Verb == "patch" && left.Add(-1) < 0 {
			dead.Store(true)
			return errors.New("the process is dead")
		}
		return nil
	})
	const look = time.Millisecond
	for range within / look {
		b.pass(look)
		if dead.Load() {
			b.server.Fault(nil)
			b.takeOver(0)
			b.pass(time.Second)
			return true
		}
	}
	return false
}

// TestFailureIsReportedByAnyReplica has a cloud fail, and the process die at each of its writes:
// the next one says what has failed, with an Event, before it sends another request to the cloud.
func TestFailureIsReportedByAnyReplica(t *testing.T) {
	for _, tc := range []struct {
		op       driver.Op
		reported string
		last     v1alpha1.MachineOperationType
		code     driver.Code
		again    time.Duration
	}{
		{driver.OpCreate, v1alpha1.EventCreateFailed, v1alpha1.MachineOperationCreate, driver.ResourceExhausted, 10 * time.Minute},
		{driver.OpCreate, v1alpha1.EventCreateFailed, v1alpha1.MachineOperationCreate, driver.Internal, 5 * time.Second},
		{driver.OpStatus, v1alpha1.EventCreateFailed, v1alpha1.MachineOperationCreate, driver.Unavailable, 5 * time.Second},
		{driver.OpDelete, v1alpha1.EventDeleteFailed, v1alpha1.MachineOperationDelete, driver.PermissionDenied, 5 * time.Second},
	} {
		for write, died := 0, true; died; write++ {
			t.Run(fmt.Sprintf("%s/%s/%d writes", tc.op, tc.code, write), func(t *testing.T) {
				onBench(t, func(b *bench) {
					if tc.op == driver.OpDelete {
						b.create(withoutDeadline)
						b.becomes(v1alpha1.MachineRunning, time.Minute)
						b.cloud.Fail(fakecloud.Fault{Code: tc.code}, tc.op)
						b.delete()
					} else {
						b.cloud.Fail(fakecloud.Fault{Code: tc.code}, tc.op)
						b.create(withoutDeadline)
					}
					if died = b.loses(write, 2*time.Second); !died {
						return
					}
					if last := b.get().Status.LastOperation; last.Type != tc.last || last.State != v1alpha1.MachineStateFailed ||
						last.ErrorCode != tc.code.String() {
						t.Errorf("the last operation is %+v, want a failed %s with %s", last, tc.last, tc.code)
					}
					if !slices.Contains(b.reported.List(), "Warning "+tc.reported) {
						t.Errorf("Events %v, want %s", b.reported.List(), tc.reported)
					}
					asked := len(b.cloud.Calls(tc.op))
					b.pass(tc.again - 2*time.Second)
					if again := len(b.cloud.Calls(tc.op)) - asked; again > 0 {
						t.Errorf("the cloud got %d requests during the pause", again)
					}
					b.cloud.Work()
					b.pass(5 * time.Second)
					if m := b.get(); tc.op == driver.OpDelete && m != nil ||
						tc.op != driver.OpDelete && m.Status.CurrentStatus.Phase != v1alpha1.MachineRunning {
						t.Errorf("in the end it is %+v", m)
					}
				})
			})
			if t.Failed() {
				return
			}
		}
	}
}
