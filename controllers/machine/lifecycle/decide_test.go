package lifecycle

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/driver"
)

// TestCloudText: people read what the cloud says, without its frame, and what else there is.
func TestCloudText(t *testing.T) {
	for text, want := range map[string]string{
		cloudMessage(driver.Internal, "a [b] c"): "a [b] c", "Machine m: Internal: " + cloudMessage(driver.Internal, ""): "Machine m: Internal: ",
		cloudMessage(driver.Internal, "x") + "; y": cloudMessage(driver.Internal, "x") + "; y", "no": "no", cloudFrame: cloudFrame,
	} {
		if got := CloudText(text); got != want {
			t.Errorf("of %q people read %q, want %q", text, got, want)
		}
	}
}

// The autoscaler reads this text, and backs off by the code, which has the same name for it.
func TestCreateErrorReadsAsTheAutoscalerExpects(t *testing.T) {
	names := []string{
		"Canceled", "Unknown", "InvalidArgument", "DeadlineExceeded", "NotFound", "AlreadyExists", "PermissionDenied", "ResourceExhausted",
		"FailedPrecondition", "Aborted", "OutOfRange", "Unimplemented", "Internal", "Unavailable", "DataLoss", "Unauthenticated", "Uninitialized",
	}
	for i, code := range driver.Codes()[1:] { // OK is no failure
		for op, state := range map[driver.Op]VMState{
			driver.OpStatus: VMUnknown, driver.OpCreate: VMAbsent, driver.OpInitialize: VMUninitialized,
		} {
			for _, age := range []time.Duration{0, limits().CreationTimeout} {
				w := fresh(vm(state))
				w.Now = w.Now.Add(age)
				w.Failure = &Failure{Code: code, Op: op, Message: "no"}
				want := v1alpha1.LastOperation{
					Type: v1alpha1.MachineOperationCreate, State: v1alpha1.MachineStateFailed, ErrorCode: names[i], LastUpdateTime: metav1.NewTime(w.Now),
					Description: "Cloud provider message - machine codes error: code = [" + names[i] + "] message = [no]",
				}
				if diff := cmp.Diff(want, Decide(w).Machine.Status.LastOperation); diff != "" {
					t.Errorf("%s of %s after %s (-want +got):\n%s", code, op, age, diff)
				}
			}
		}
	}
}

func TestEveryBadInputSaysWhatToDo(t *testing.T) {
	for _, change := range []func(*World){
		func(w *World) { w.Class = ClassFact{} },
		func(w *World) { w.Secret = SecretFact{Read: true, Missing: "s"} },
		func(w *World) { w.Secret.UserData = nil },
	} {
		v := Decide(fresh(change))
		text := v.Machine.Status.LastOperation.Description
		if !strings.Contains(text, "create it") && !strings.Contains(text, "add it") {
			t.Errorf("no advice in %q", text)
		}
	}
}

// TestBackoff lets the cloud fail in one way after the other.
func TestBackoff(t *testing.T) {
	type failure struct {
		code  driver.Code
		after time.Duration // that the cloud requests
	}
	for name, tc := range map[string]struct {
		failures []failure
		waits    []time.Duration
	}{
		"it doubles": {
			failures: slices.Repeat([]failure{{code: driver.Internal}}, 8),
			waits:    seconds(5, 10, 20, 40, 80, 160, 180, 180),
		},
		"regardless of the code": {
			failures: []failure{{code: driver.Internal}, {code: driver.Unavailable}, {code: driver.Internal}, {code: driver.DeadlineExceeded}},
			waits:    seconds(5, 10, 20, 40),
		},
		"a lack of quota has its own wait, always the same": {
			failures: slices.Repeat([]failure{{code: driver.ResourceExhausted}}, 3),
			waits:    seconds(600, 600, 600),
		},
		"and what follows it begins anew": {
			failures: []failure{
				{code: driver.Internal}, {code: driver.Internal}, {code: driver.ResourceExhausted}, {code: driver.Internal}, {code: driver.Internal},
			},
			waits: seconds(5, 10, 600, 5, 10),
		},
		"the cloud requests a longer wait, and a shorter one": {
			failures: []failure{
				{driver.Unavailable, time.Minute},
				{driver.Unavailable, time.Minute},
				{driver.Unavailable, time.Second},
				{driver.ResourceExhausted, time.Second},
				{driver.ResourceExhausted, time.Hour},
			},
			waits: seconds(60, 60, 20, 600, 3600),
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := fresh(vm(VMAbsent))
			for i, failure := range tc.failures {
				w.Failure = &Failure{Code: failure.code, Op: driver.OpCreate, RetryAfter: failure.after, Message: "no"}
				v := Decide(w)
				if got := readBackoff(World{Now: w.Now, Limits: w.Limits, Machine: v.Machine}).At.Sub(w.Now); got != tc.waits[i] {
					t.Errorf("failure %d: the next try is in %s, want %s", i+1, got, tc.waits[i])
				}
				w.Machine = v.Machine
				w.Now = w.Now.Add(tc.waits[i])
			}
		})
	}
}

// A call that the circuit breaker of the account holds is no attempt: the machine reports it, keeps
// its back-off, and continues when the verdict says.
func TestHeldCallsAreNoAttempts(t *testing.T) {
	w := fresh(vm(VMAbsent))
	w.Failure = &Failure{Code: driver.Internal, Op: driver.OpCreate, Message: "no"}
	w.Machine = Decide(w).Machine
	backoff := w.Machine.Annotations[v1alpha1.AnnotationBackoff]
	w.Now = w.Now.Add(firstRetry)
	held := &Failure{Code: driver.Unavailable, Message: "open", Held: true, RetryAfter: 7 * time.Second}
	deleted := w
	deleted.Machine = w.Machine.DeepCopy()
	now := metav1.NewTime(w.Now)
	deleted.Machine.DeletionTimestamp, deleted.Machine.Status.CurrentStatus.Phase = &now, v1alpha1.MachineTerminating
	for op, w := range map[v1alpha1.MachineOperationType]World{v1alpha1.MachineOperationCreate: w, v1alpha1.MachineOperationDelete: deleted} {
		w.Failure = held
		v := Decide(w)
		if v.Do != Rest || v.Wake != held.RetryAfter {
			t.Errorf("%s: %s, again after %s; want to rest for %s", op, v.Do, v.Wake, held.RetryAfter)
		}
		last := v.Machine.Status.LastOperation
		if last.Type != op || last.State != v1alpha1.MachineStateFailed || last.ErrorCode != "Unavailable" ||
			last.Description != cloudMessage(driver.Unavailable, "open") {
			t.Errorf("%s: the last operation is %+v", op, last)
		}
		before, after := readBackoff(World{Now: w.Now, Limits: w.Limits, Machine: w.Machine}),
			readBackoff(World{Now: w.Now, Limits: w.Limits, Machine: v.Machine})
		if after.At != before.At || after.Step != before.Step {
			t.Errorf("%s: the back-off is %+v, want %s as it was", op, after, backoff)
		}
	}
}

func seconds(n ...int) []time.Duration {
	var all []time.Duration
	for _, s := range n {
		all = append(all, time.Duration(s)*time.Second)
	}
	return all
}
