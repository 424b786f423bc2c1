package lifecycle

import (
	"strings"
	"testing"
	"time"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/driver"
)

// The autoscaler reads this text, and backs off by the code.
func TestCreateErrorReadsAsTheAutoscalerExpects(t *testing.T) {
	w := fresh(vm(VMAbsent))
	w.Failure = &Failure{Code: driver.ResourceExhausted, Op: driver.OpCreate, Message: "no"}
	v := Decide(w)
	op := v.Machine.Status.LastOperation
	want := "Cloud provider message - machine codes error: code = [ResourceExhausted] message = [no]"
	if op.Type != v1alpha1.MachineOperationCreate || op.State != v1alpha1.MachineStateFailed || op.Description != want {
		t.Errorf("lastOperation = %+v", op)
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

func TestNextAttempt(t *testing.T) {
	for _, tc := range []struct {
		code driver.Code
		now  time.Duration // after the first failure
		want time.Duration
	}{
		{driver.Internal, 0, 5 * time.Second},
		{driver.Internal, 4 * time.Second, 5 * time.Second},
		{driver.Internal, 5 * time.Second, 15 * time.Second},
		{driver.Internal, 16 * time.Second, 35 * time.Second},
		{driver.Internal, 40 * time.Second, 75 * time.Second},
		{driver.Internal, 155 * time.Second, 315 * time.Second},
		{driver.Internal, 315 * time.Second, 495 * time.Second}, // 180 s from here on
		{driver.Internal, 495 * time.Second, 675 * time.Second},
		{driver.ResourceExhausted, 0, 10 * time.Minute},
		{driver.ResourceExhausted, 10 * time.Minute, 20 * time.Minute},
		{driver.ResourceExhausted, 25 * time.Minute, 30 * time.Minute},
	} {
		if got := nextAttempt(born, born.Add(tc.now), tc.code, limits()).Sub(born); got != tc.want {
			t.Errorf("%s, %s after the first failure: next attempt at %s, want %s", tc.code, tc.now, got, tc.want)
		}
	}
	// It ends at once also when the failure is old.
	if got := nextAttempt(born, born.Add(1000*time.Hour), driver.Internal, limits()); !got.After(born.Add(1000 * time.Hour)) {
		t.Errorf("next attempt %s is not after now", got)
	}
}
