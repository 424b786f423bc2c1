package machine

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machine/cloud"
	"github.com/machine-controller-fleet/machine-controller-fleet/driver"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/objectcache"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/fakecloud"
)

// outage is how long a cloud fails in these tests, except for quota, which is retried every ten
// minutes only.
func outage(code driver.Code) time.Duration {
	if code == driver.ResourceExhausted {
		return 35 * time.Minute
	}
	return 10 * time.Minute
}

// attempts are the times, counted from the first, of the requests to a cloud that fails with a code
// in an outage.
func attempts(code driver.Code) []time.Duration {
	if code == driver.ResourceExhausted {
		return []time.Duration{0, 10 * time.Minute, 20 * time.Minute, 30 * time.Minute}
	}
	return []time.Duration{
		0, 5 * time.Second, 15 * time.Second, 35 * time.Second, 75 * time.Second, 155 * time.Second, 315 * time.Second, 495 * time.Second,
	}
}

// longestStep is the longest wait for the next attempt, at the end of such an outage.
func longestStep(code driver.Code) time.Duration {
	if code == driver.ResourceExhausted {
		return 10 * time.Minute
	}
	return 3 * time.Minute
}

// failedAt returns when calls failed, counted from the first of them.
func failedAt(calls []fakecloud.Call) (at []time.Duration) {
	for _, call := range calls {
		if call.Failed {
			at = append(at, call.At.Sub(calls[0].At))
		}
	}
	return at
}

// harmless reports whether an error is a normal answer: there is no VM, or nothing to initialize.
func harmless(op driver.Op, code driver.Code) bool {
	switch op { //nolint:exhaustive // the others have no such answer
	case driver.OpStatus:
		return code == driver.NotFound || code == driver.Unimplemented || code == driver.Uninitialized
	case driver.OpInitialize:
		return code == driver.Unimplemented
	case driver.OpDelete:
		return code == driver.NotFound
	case driver.OpVolumeIDs:
		return code == driver.Unimplemented
	}
	return false
}

// operations are the calls that the controller sends. It does not list VMs yet.
var operations = []driver.Op{driver.OpStatus, driver.OpCreate, driver.OpInitialize, driver.OpDelete, driver.OpVolumeIDs}

// TestCloudFails has each call fail in each way for a while, without effect and with it. There is
// one VM all the time or, in the end, none; requests to the cloud become less frequent; the machine
// reports why, without a gap; and it continues soon after.
func TestCloudFails(t *testing.T) {
	codes := driver.Codes()
	if testing.Short() {
		codes = []driver.Code{driver.Unavailable, driver.ResourceExhausted}
	}
	for _, code := range codes {
		for _, op := range operations {
			if code == driver.OK || harmless(op, code) {
				continue
			}
			for _, takesEffect := range []bool{false, true} {
				if takesEffect && (op == driver.OpStatus || op == driver.OpVolumeIDs) {
					continue // they have none
				}
				t.Run(fmt.Sprintf("%s/%s/effect=%t", code, op, takesEffect), func(t *testing.T) {
					onBench(t, func(b *bench) {
						fault := fakecloud.Fault{Code: code, TakesEffect: takesEffect}
						if op == driver.OpVolumeIDs {
							b.drainOutlasts(fault)
						} else {
							b.outlasts(op, fault)
						}
					})
				})
			}
		}
	}
}

// drainOutlasts has requests for names of volumes fail while a Node is drained. The pods are
// evicted all the same, the step that waits for a name gets it soon after, and the VM is deleted
// when that volume is detached.
func (b *bench) drainOutlasts(fault fakecloud.Fault) {
	b.Helper()
	w := b.startsDrain(fault)
	b.pass(outage(fault.Code))
	if diff := cmp.Diff(attempts(fault.Code), failedAt(b.cloud.Calls(driver.OpVolumeIDs))); diff != "" {
		b.Errorf("attempts (-want +got):\n%s", diff)
	}
	if left := w.left(); !slices.Equal(left, []string{"pod old", "volume kubernetes.io/aws-ebs/vol-old"}) {
		b.Errorf("left on the Node are %v, want what is held", left)
	}
	w.works(longestStep(fault.Code))
}

// startsDrain drains a Node with a pod that has a volume and is blocked, while requests for names
// of volumes fail.
func (b *bench) startsDrain(fault fakecloud.Fault) *workload {
	b.Helper()
	b.create()
	b.becomes(v1alpha1.MachineRunning, time.Minute)
	w := b.works()
	w.blockedPod = "old"
	b.cloud.Fail(fault, driver.OpVolumeIDs)
	b.delete()
	return w
}

// works makes the cloud return names again, and unblocks the pod. The workload checks that the VM
// stays until then.
func (w *workload) works(soon time.Duration) {
	w.Helper()
	w.cloud.Work()
	failed := len(w.cloud.Calls(driver.OpVolumeIDs))
	w.pass(soon)
	if reported := len(w.cloud.Calls(driver.OpVolumeIDs)) - failed; reported != 1 { // the other volume has moved, name or not
		w.Errorf("the cloud got %d requests for names after it works again, want one", reported)
	}
	w.mu.Lock()
	w.blockedPod = ""
	w.mu.Unlock()
	w.pass(10 * time.Minute)
	if w.get() != nil {
		w.Errorf("the machine reports %q", w.operation())
	}
}

// outlasts has the calls of an operation fail, and then work again.
func (b *bench) outlasts(op driver.Op, fault fakecloud.Fault) {
	b.Helper()
	deletes := op == driver.OpDelete
	want := v1alpha1.MachineOperationCreate
	if deletes {
		want = v1alpha1.MachineOperationDelete
		b.create(withoutDeadline)
		b.becomes(v1alpha1.MachineRunning, time.Minute)
	}
	b.cloud.Fail(fault, op)
	if deletes {
		b.delete()
	} else {
		b.create(withoutDeadline)
	}
	if fault.TakesEffect && (op == driver.OpCreate || op == driver.OpInitialize) { // the next attempt sees what the first has done
		b.becomes(v1alpha1.MachineRunning, attempts(fault.Code)[1]+bootTime)
		if now, ever := b.cloud.VMs(); now != 1 || ever != 1 || len(b.cloud.Calls(op)) != 1 {
			b.Errorf("there are %d VMs of %d that were created, with %d calls; want one", now, ever, len(b.cloud.Calls(op)))
		}
		return
	}
	const look = 5 * time.Second
	for range outage(fault.Code) / look {
		b.pass(look)
		last := b.get().Status.LastOperation
		if last.Type != want || last.State != v1alpha1.MachineStateFailed || last.ErrorCode != fault.Code.String() {
			b.Fatalf("the last operation is %+v, want a failed %s with %s", last, want, fault.Code)
		}
	}
	if diff := cmp.Diff(attempts(fault.Code), failedAt(b.cloud.Calls(op))); diff != "" {
		b.Errorf("attempts (-want +got):\n%s", diff)
	}
	b.cloud.Work()
	if deletes {
		b.pass(longestStep(fault.Code))
		if now, _ := b.cloud.VMs(); b.get() != nil || now != 0 || len(b.left()) > 0 {
			b.Errorf("left: machine %v, %d VMs, %v", b.get(), now, b.left())
		}
	} else {
		b.becomes(v1alpha1.MachineRunning, longestStep(fault.Code)+bootTime)
		if now, ever := b.cloud.VMs(); now != 1 || ever != 1 {
			b.Errorf("there are %d VMs of %d that were created, want one", now, ever)
		}
		if _, waits := b.get().Annotations[v1alpha1.AnnotationBackoff]; waits {
			b.Errorf("the cloud works, and the machine is still to wait: %v", b.get().Annotations)
		}
	}
}

// TestCloudThrottles has the cloud ask for more time than it would be given, until it would be
// given more.
func TestCloudThrottles(t *testing.T) {
	want := []time.Duration{
		0, 45 * time.Second, 90 * time.Second, 135 * time.Second, 180 * time.Second, 260 * time.Second, 420 * time.Second, 600 * time.Second,
	}
	for _, op := range operations {
		t.Run(string(op), func(t *testing.T) {
			onBench(t, func(b *bench) {
				fault := fakecloud.Fault{Code: driver.Unavailable, RetryAfter: 45 * time.Second}
				w := b.meets(op, fault)
				b.pass(10 * time.Minute)
				if diff := cmp.Diff(want, failedAt(b.cloud.Calls(op))); diff != "" {
					t.Errorf("attempts (-want +got):\n%s", diff)
				}
				b.recovers(op, w, 3*time.Minute)
			})
		})
	}
}

// volumeIDsTimeout is that of package drainer.
const volumeIDsTimeout = 5 * time.Second

// TestCloudHangs has calls never be answered, which take effect or not. The caller stops waiting
// after a minute, or much sooner where a drain waits for it, and holds no worker meanwhile for
// longer than one call takes.
func TestCloudHangs(t *testing.T) {
	for _, op := range operations {
		gives := cloud.Timeout
		if op == driver.OpVolumeIDs {
			gives = volumeIDsTimeout
		}
		var want []time.Duration
		for i, seconds := range []int{0, 5, 15, 35, 75, 155, 315, 495} {
			if at := time.Duration(i)*gives + time.Duration(seconds)*time.Second; at < 10*time.Minute {
				want = append(want, at)
			}
		}
		for _, takesEffect := range []bool{false, true} {
			changes := op != driver.OpStatus && op != driver.OpVolumeIDs
			if takesEffect && !changes {
				continue
			}
			t.Run(fmt.Sprintf("%s/effect=%t", op, takesEffect), func(t *testing.T) {
				onBench(t, func(b *bench) {
					w := b.meets(op, fakecloud.Fault{Hangs: true, TakesEffect: takesEffect})
					if takesEffect && op != driver.OpDelete { // the next attempt sees what the first has done
						b.becomes(v1alpha1.MachineRunning, want[1]+bootTime)
					} else {
						b.pass(10 * time.Minute)
						if diff := cmp.Diff(want, failedAt(b.cloud.Calls(op))); diff != "" {
							t.Errorf("attempts (-want +got):\n%s", diff)
						}
					}
					b.recovers(op, w, gives+3*time.Minute)
				})
			})
		}
	}
}

// meets has a machine come to a call that fails.
func (b *bench) meets(op driver.Op, fault fakecloud.Fault) *workload {
	b.Helper()
	switch op { //nolint:exhaustive // the others are met on the way to a VM
	case driver.OpVolumeIDs:
		return b.startsDrain(fault)
	case driver.OpDelete:
		b.create(withoutDeadline)
		b.becomes(v1alpha1.MachineRunning, time.Minute)
		b.cloud.Fail(fault, op)
		b.delete()
	default:
		b.cloud.Fail(fault, op)
		b.create(withoutDeadline)
	}
	return nil
}

// recovers has the cloud work again, and the machine come soon to where it should be.
func (b *bench) recovers(op driver.Op, w *workload, soon time.Duration) {
	b.Helper()
	b.cloud.Work()
	switch op { //nolint:exhaustive // the others are met on the way to a VM
	case driver.OpVolumeIDs:
		w.works(soon)
	case driver.OpDelete:
		b.pass(soon)
		if now, ever := b.cloud.VMs(); b.get() != nil || now != 0 || ever != 1 || len(b.left()) > 0 {
			b.Errorf("left: machine %v, %d of %d VMs, %v", b.get(), now, ever, b.left())
		}
	default:
		b.becomes(v1alpha1.MachineRunning, soon+bootTime)
		if now, ever := b.cloud.VMs(); now != 1 || ever != 1 {
			b.Errorf("there are %d VMs of %d that were created, want one", now, ever)
		}
	}
}

// TestNoVMIsForgotten has a machine be deleted of whose VM only the cloud knows, while it does not
// answer to that.
func TestNoVMIsForgotten(t *testing.T) {
	for _, code := range driver.Codes() {
		if code == driver.OK || code == driver.OutOfRange || harmless(driver.OpStatus, code) { // OutOfRange shows that there are VMs
			continue
		}
		t.Run(code.String(), func(t *testing.T) {
			onBench(t, func(b *bench) {
				b.cloud.Fail(fakecloud.Fault{Code: driver.DeadlineExceeded, TakesEffect: true}, driver.OpCreate)
				b.create(withoutDeadline)
				b.pass(time.Second)
				b.cloud.Fail(fakecloud.Fault{Code: code}, driver.OpStatus)
				b.end() // or it may ask once more
				b.server.ShowIn(objectcache.NewView())
				b.delete()
				b.pass(time.Second)
				b.start()
				b.pass(outage(code))
				last := b.get().Status.LastOperation
				if last.Type != v1alpha1.MachineOperationDelete || last.State != v1alpha1.MachineStateFailed || last.ErrorCode != code.String() {
					t.Errorf("the last operation is %+v", last)
				}
				looked := b.cloud.Calls(driver.OpStatus)[1:] // the first was before the create
				if diff := cmp.Diff(attempts(code), failedAt(looked)); diff != "" {
					t.Errorf("attempts (-want +got):\n%s", diff)
				}
				b.recovers(driver.OpDelete, nil, longestStep(code))
			})
		})
	}
}

// TestTheWaitSurvivesAHandOver has process after process go on with one machine that the cloud has
// no room for.
func TestTheWaitSurvivesAHandOver(t *testing.T) {
	onBench(t, func(b *bench) {
		b.cloud.Fail(fakecloud.Fault{Code: driver.ResourceExhausted}, driver.OpCreate)
		b.create(withoutDeadline)
		b.pass(4 * time.Minute)
		b.takeOver(15 * time.Second)
		b.pass(7 * time.Minute) // 11:15, the second attempt was due at 10:00
		b.cloud.Fail(fakecloud.Fault{Code: driver.ResourceExhausted, RetryAfter: 25 * time.Minute}, driver.OpCreate)
		b.pass(8 * time.Minute) // 19:15
		b.takeOver(time.Minute) // no process ran when the third attempt was due, at 20:00
		b.pass(time.Second)     // it came at 20:15, and the cloud requests no call until 45:15
		b.takeOver(time.Minute)
		b.pass(20 * time.Minute)
		b.takeOver(0)
		b.pass(5 * time.Minute)
		want := []time.Duration{0, 10 * time.Minute, 20*time.Minute + 15*time.Second, 45*time.Minute + 15*time.Second}
		if diff := cmp.Diff(want, failedAt(b.cloud.Calls(driver.OpCreate))); diff != "" {
			t.Errorf("attempts (-want +got):\n%s", diff)
		}
	})
}

// TestAnotherClassIsTriedAtOnce corrects a refused class, while a process runs, while none does,
// and while the watch of a process is away.
func TestAnotherClassIsTriedAtOnce(t *testing.T) {
	mend := func(b *bench) { b.patchClass(`{"providerSpec":{"mended":true}}`) }
	for name, correct := range map[string]func(b *bench){
		"while the process lives": mend,
		"between two processes": func(b *bench) {
			b.end()
			mend(b)
			b.start()
		},
		"by another of the same name, while the watch is away": func(b *bench) {
			b.server.ShowIn(objectcache.NewView())
			b.loseClass()
			b.createClass()
			b.server.ShowIn(b.process.cfg.View)
		},
	} {
		t.Run(name, func(t *testing.T) {
			onBench(t, func(b *bench) {
				b.cloud.Fail(fakecloud.Fault{Code: driver.InvalidArgument}, driver.OpStatus)
				b.create(withoutDeadline)
				b.pass(10 * time.Minute) // the next attempt is due at 11:15
				tried := len(b.cloud.Calls(driver.OpStatus))
				b.takeOver(0)
				b.pass(time.Second)
				if got := len(b.cloud.Calls(driver.OpStatus)); got != tried {
					t.Error("nothing has changed, and the cloud got another request")
				}
				b.cloud.Work()
				correct(b)
				b.becomes(v1alpha1.MachineRunning, bootTime)
			})
		})
	}
}

func TestAVMThatCannotBeSetUpIsNotCreatedAgain(t *testing.T) {
	onBench(t, func(b *bench) {
		b.cloud.Fail(fakecloud.Fault{Code: driver.Internal}, driver.OpInitialize)
		b.create(withoutDeadline)
		b.pass(time.Minute)
		if m := b.get(); m.Spec.ProviderID == "" || m.Status.CurrentStatus.Phase != v1alpha1.MachineCrashLoopBackOff {
			t.Errorf("the VM is not written down, or the phase is wrong: %+v", m)
		}
		b.cloud.Work()
		b.becomes(v1alpha1.MachineRunning, time.Minute)
		if creates := b.cloud.Calls(driver.OpCreate); len(creates) != 1 {
			t.Errorf("%d creates, want one", len(creates))
		}
	})
}
