package driver

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"
)

// The numbers and texts are those that users and the cluster-autoscaler know from Machine
// Controller Manager.
func TestCodes(t *testing.T) {
	want := []string{
		"OK", "Canceled", "Unknown", "InvalidArgument", "DeadlineExceeded", "NotFound", "AlreadyExists", "PermissionDenied",
		"ResourceExhausted", "FailedPrecondition", "Aborted", "OutOfRange", "Unimplemented", "Internal", "Unavailable", "DataLoss",
		"Unauthenticated", "Uninitialized",
	}
	all := Codes()
	if len(all) != len(want) {
		t.Fatalf("%d codes, want %d", len(all), len(want))
	}
	for i, text := range want {
		if all[i] != Code(i) || all[i].String() != text {
			t.Errorf("code %d is %v, want %s", i, all[i], text)
		}
		if code, ok := ParseCode(text); !ok || code != all[i] {
			t.Errorf("ParseCode(%q) = %v, %t", text, code, ok)
		}
	}
	if code, ok := ParseCode("Nonsense"); ok || code != Unknown {
		t.Errorf("ParseCode of no code = %v, %t", code, ok)
	}
	if got := Code(99).String(); got != "Code(99)" {
		t.Errorf("a number that is no code has the text %q", got)
	}
}

func TestCodeOf(t *testing.T) {
	quota := Errorf(OpCreate, ResourceExhausted, "quota of %d", 5)
	for name, c := range map[string]struct {
		err  error
		want Code
	}{
		"nil":          {nil, OK},
		"of a driver":  {quota, ResourceExhausted},
		"wrapped":      {fmt.Errorf("machine a: %w", quota), ResourceExhausted},
		"joined":       {errors.Join(errors.New("x"), quota), ResourceExhausted},
		"of no driver": {errors.New("machine codes error: code = [NotFound]"), Unknown},
	} {
		if got := CodeOf(c.err); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

func TestThrottled(t *testing.T) {
	for name, c := range map[string]struct {
		err           error
		kind, message string
	}{
		"for some time": {
			Throttledf(OpCreate, 29600*time.Millisecond, "slow down"), "Throttled", "throttled, to be repeated after 30s: slow down",
		},
		"for a moment": {
			fmt.Errorf("wrapped: %w", Throttledf(OpCreate, time.Millisecond, "slow down")), "Throttled",
			"throttled, to be repeated after 1s: slow down",
		},
		"for no time":  {Throttledf(OpCreate, 0, "slow down"), "Throttled", "throttled: slow down"},
		"an outage":    {&Error{Code: Unavailable, RetryAfter: time.Minute, Err: errors.New("down")}, "Unavailable", "down"},
		"of no driver": {errors.New("throttled"), "Unknown", "throttled"},
	} {
		if got := KindOf(c.err); got != c.kind || MessageOf(c.err) != c.message {
			t.Errorf("%s: %s with %q, want %s with %q", name, got, MessageOf(c.err), c.kind, c.message)
		}
	}
	// ResourceExhausted has the cluster-autoscaler use another node group.
	if err := Throttledf(OpCreate, 0, "slow down"); err.Code != Unavailable {
		t.Errorf("the code is %s, want Unavailable", err.Code)
	}
}

func TestError(t *testing.T) {
	err := Errorf(OpDelete, DeadlineExceeded, "no answer: %w", context.DeadlineExceeded)
	if want := "delete_machine: DeadlineExceeded: no answer: context deadline exceeded"; err.Error() != want {
		t.Errorf("%q, want %q", err.Error(), want)
	}
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Error("the error does not wrap its cause")
	}
	if want := "get_machine_status: NotFound"; (&Error{Code: NotFound, Op: OpStatus}).Error() != want {
		t.Errorf("without a cause: want %q", want)
	}
}

func TestRetryAfterOf(t *testing.T) {
	for given, want := range map[time.Duration]time.Duration{
		0: 0, -time.Second: 0, time.Minute: time.Minute, MaxRetryAfter: MaxRetryAfter, 1000 * time.Hour: MaxRetryAfter,
	} {
		if got := RetryAfterOf(fmt.Errorf("x: %w", &Error{Code: Unavailable, RetryAfter: given})); got != want {
			t.Errorf("%v: %v, want %v", given, got, want)
		}
	}
	if got := RetryAfterOf(errors.New("x")); got != 0 {
		t.Errorf("of no driver: %v, want 0", got)
	}
}
