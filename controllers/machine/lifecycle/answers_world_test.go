package lifecycle

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/driver"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/worlds"
)

// answer is how a driver answers a create or a search, always.
type answer struct {
	code   driver.Code // of the error; OK for none
	state  VMState     // of the VM, without an error
	vm     driver.VM
	reason string // what is invalid about it
}

// drawAnswer draws an answer of a driver.
func drawAnswer(t *rapid.T, label string, more ...string) answer {
	codes := []driver.Code{
		driver.Canceled, driver.Unknown, driver.InvalidArgument, driver.DeadlineExceeded, driver.AlreadyExists, driver.PermissionDenied,
		driver.ResourceExhausted, driver.FailedPrecondition, driver.Aborted, driver.OutOfRange, driver.Internal, driver.Unavailable,
		driver.DataLoss, driver.Unauthenticated,
	}
	kind := rapid.SampledFrom(append([]string{"right", "error", "no node name", "nothing valid", "another provider ID", "empty"}, more...)).
		Draw(t, label)
	switch kind {
	case "error":
		return answer{code: rapid.SampledFrom(codes).Draw(t, label+" code")}
	case "no node name":
		return answer{state: VMUninitialized, vm: driver.VM{ProviderID: ownVM.ProviderID}, reason: kind}
	case "nothing valid":
		return answer{state: VMHidden, reason: kind}
	case "another provider ID":
		return answer{state: VMUninitialized, vm: driver.VM{ProviderID: "cloud:///i-9", NodeName: "m"}}
	case "empty":
		return answer{state: VMPresent}
	case "absent":
		return answer{state: VMAbsent}
	case "hidden":
		return answer{state: VMHidden}
	}
	return answer{state: VMPresent, vm: ownVM}
}

// give records the answer in a world, as the controller does.
func (a answer) give(l *life, w *World, op driver.Op) {
	if a.code != driver.OK {
		w.Failure = &Failure{Code: a.code, Op: op}
		return
	}
	w.VM = VMFact{State: a.state, VM: a.vm, Invalid: a.reason}
	switch a.state { //nolint:exhaustive // the others have no VM
	case VMHidden:
		w.VM.VM = HiddenVM(l.machine).VM
	case VMPresent, VMUninitialized:
		l.proven, w.Proven = a.vm.ProviderID == ownVM.ProviderID, a.vm.ProviderID
	}
}

// Regardless of what a driver answers to creates and searches, its DeleteMachine is called when a
// create may have been sent, and when that removes the VM the deletion ends soon after the time for
// the drain.
func TestDeletionEndsWithoutVMRegardlessOfTheDriversAnswers(t *testing.T) {
	worlds.Check(t, rounds, func(t *rapid.T) {
		w := fresh()
		w.Machine.Finalizers, w.Machine.Labels = nil, map[string]string{v1alpha1.LabelSlot: "7"}
		l := &life{t: t, now: born, machine: w.Machine}
		created, found, requested, deleted := drawAnswer(t, "create"), drawAnswer(t, "search", "absent", "hidden"), false, false
		l.cloud = func(w *World, do Action) bool {
			switch do { //nolint:exhaustive // the others are answered as usual
			case CreateVM:
				requested, l.vms = true, 1
				created.give(l, w, driver.OpCreate)
				return true
			case FindVM:
				if !requested {
					w.VM = VMFact{State: VMAbsent}
					return true
				}
				found.give(l, w, driver.OpStatus)
				return true
			case DeleteVM:
				deleted = true
			}
			return false
		}
		l.enqueue()
		l.advance(time.Duration(rapid.IntRange(0, 1500).Draw(t, "seconds until it joins"))*time.Second, nil)
		if requested && rapid.Bool().Draw(t, "joins") {
			l.boot()
			l.advance(time.Duration(rapid.IntRange(0, 600).Draw(t, "seconds until the deletion"))*time.Second, nil)
		}
		if rapid.Bool().Draw(t, "another process takes over") {
			l.proven, l.ending = false, VMFact{}
		}
		l.delete()
		l.advance(drainTimeout+10*time.Minute, func() bool { return l.machine == nil })
		if l.machine != nil {
			t.Fatalf("the deletion does not end: %+v", l.machine.Status)
		}
		if requested && !deleted {
			t.Fatal("a create was sent, and DeleteMachine was never called")
		}
	})
}

// advance runs the passes that are due within some time, until the machine is gone or done reports
// true.
func (l *life) advance(d time.Duration, done func() bool) {
	end := l.now.Add(d)
	for passes := 0; l.machine != nil && !l.due.IsZero() && !l.due.After(end); passes++ {
		if passes == 1000 {
			l.t.Fatalf("1000 passes within %s: %+v", d, l.machine.Status)
		}
		l.now = later(l.now, l.due)
		l.pass()
		if done != nil && done() {
			return
		}
	}
	l.now = end
}
