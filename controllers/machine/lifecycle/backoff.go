package lifecycle

import (
	"time"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/driver"
)

// Waits between attempts at the cloud: the first, doubled each time, up to the longest.
const (
	firstRetry   = 5 * time.Second
	longestRetry = 3 * time.Minute
)

// SecretRetry is when a secret that was missing or incomplete is read again. Secrets are not watched.
const SecretRetry = 10 * time.Second

// nextAttempt returns the first attempt after now in the schedule of a failure that has lasted since since. The schedule
// depends on nothing else, so a process that takes the machine over goes on with it.
//
// With waits of 5 s, 10 s, 20 s, … the attempts are 5 s, 15 s, 35 s, … after the first failure.
func nextAttempt(since, now time.Time, code driver.Code, limits Limits) time.Time {
	wait, longest := firstRetry, longestRetry
	if code == driver.ResourceExhausted {
		wait = max(limits.ResourceExhaustedRetry, time.Second)
		longest = wait
	}
	at := since.Add(wait)
	for !at.After(now) {
		if wait = min(2*wait, longest); wait == longest { // from here on in even steps: go to the last one before now
			at = at.Add(now.Sub(at).Truncate(wait))
		}
		at = at.Add(wait)
	}
	return at
}

// retryAt is when a call that has failed since since, and now once more, may be tried again: by the schedule, or later
// if the cloud asks for it.
func retryAt(w World, since time.Time, code driver.Code) time.Time {
	at := nextAttempt(since, w.Now, code, w.Limits)
	if w.Failure != nil && w.Now.Add(w.Failure.RetryAfter).After(at) {
		return w.Now.Add(w.Failure.RetryAfter)
	}
	return at
}

// waiting says whether the cloud has to be left alone after its last failure at op, and until when.
func waiting(w World, op v1alpha1.MachineOperationType) (until time.Time, wait bool) {
	last := w.Machine.Status.LastOperation
	if last.Type != op || last.State != v1alpha1.MachineStateFailed || w.InputsChanged {
		return time.Time{}, false
	}
	if !w.RetryAt.IsZero() {
		return w.RetryAt, w.RetryAt.After(w.Now)
	}
	code, known := driver.ParseCode(last.ErrorCode)
	if !known || mendedByUser(code) {
		return time.Time{}, false
	}
	return nextAttempt(last.LastUpdateTime.Time, w.Now, code, w.Limits), true
}

// mendedByUser says that an error of this code lasts until somebody changes class, secret or cloud account. A
// replacement of the machine would meet it again, so the machine is never given up for it; and a new process tries at
// once, since the change may have come while nobody looked.
func mendedByUser(code driver.Code) bool {
	switch code {
	case driver.InvalidArgument, driver.NotFound, driver.PermissionDenied, driver.Unauthenticated,
		driver.FailedPrecondition, driver.Unimplemented:
		return true
	case driver.OK, driver.Canceled, driver.Unknown, driver.DeadlineExceeded, driver.AlreadyExists,
		driver.ResourceExhausted, driver.Aborted, driver.OutOfRange, driver.Internal, driver.Unavailable,
		driver.DataLoss, driver.Uninitialized:
		return false
	default:
		return false
	}
}

// sharedByReplacement says that a new machine in this one's place would fail in the same way: what the user has to mend,
// and a lack of quota or capacity.
func sharedByReplacement(code driver.Code) bool {
	return mendedByUser(code) || code == driver.ResourceExhausted
}
