package plugin

import (
	"errors"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/machine-controller-fleet/machine-controller-fleet/driver"
	driverv1 "github.com/machine-controller-fleet/machine-controller-fleet/driver/plugin/v1"
)

// toFailure returns an error of a driver as it is sent; nil for nil. What is no *driver.Error is
// Unknown.
func toFailure(op driver.Op, err error) *driverv1.Failure {
	if err == nil {
		return nil
	}
	failure := &driverv1.Failure{Code: driverv1.Code(driver.CodeOf(err)), Operation: string(op)}
	cause := err
	if typed, ok := errors.AsType[*driver.Error](err); ok {
		if typed.Err != nil {
			cause = typed.Err
		}
		failure.Operation = string(typed.Op)
	}
	if failure.GetCode() == driverv1.Code_CODE_OK {
		failure.Code = driverv1.Code_CODE_UNKNOWN
	}
	failure.Cause, failure.Pending, failure.Throttled = bounded(cause.Error()), driver.IsPending(err), driver.IsThrottled(err)
	if wait := driver.RetryAfterOf(err); wait > 0 {
		failure.RetryAfter = durationpb.New(wait)
	}
	return failure
}

// fromFailure returns a failure as an error of the operation that was called; nil for none.
func fromFailure(op driver.Op, failure *driverv1.Failure) error {
	if failure == nil {
		return nil
	}
	typed := &driver.Error{Code: driver.Unknown, Op: op, Err: errors.New(bounded(failure.GetCause()))}
	if code := failure.GetCode(); code > 0 && int(code) < len(driver.Codes()) {
		typed.Code = driver.Code(code)
	}
	if failure.GetCause() == "" {
		typed.Err = errors.New("the driver reported no cause")
	}
	typed.RetryAfter, typed.Pending, typed.Throttled = retryAfter(failure.GetRetryAfter()), failure.GetPending(), failure.GetThrottled()
	return typed
}

// retryAfter returns a wait that a driver requests, within its bounds; 0 for none and for one that
// is invalid.
func retryAfter(wait *durationpb.Duration) time.Duration {
	if wait.CheckValid() != nil {
		return 0
	}
	return min(max(wait.AsDuration(), 0), driver.MaxRetryAfter)
}

// bounded returns a text of at most maxCause bytes, in UTF-8.
func bounded(text string) string {
	if len(text) > maxCause {
		text = text[:maxCause]
	}
	return strings.ToValidUTF8(text, "\uFFFD")
}
