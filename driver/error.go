package driver

import (
	"errors"
	"fmt"
	"time"
)

// Code is the kind of failure of an Error. The numbers and the texts are those of Machine
// Controller Manager: the text is the errorCode of a Machine's lastOperation, where the
// cluster-autoscaler reads it.
type Code uint8

// The codes. Which of them the fleet retries soon, and which later, is decided in
// controllers/machine/lifecycle.
const (
	OK Code = iota
	Canceled
	Unknown
	InvalidArgument
	DeadlineExceeded
	NotFound
	AlreadyExists
	PermissionDenied
	ResourceExhausted
	FailedPrecondition
	Aborted
	OutOfRange
	Unimplemented
	Internal
	Unavailable
	DataLoss
	Unauthenticated
	Uninitialized
)

// Codes lists all codes, in the order of their numbers.
func Codes() []Code {
	all := make([]Code, len(codeTexts))
	for i := range codeTexts {
		all[i] = Code(i)
	}
	return all
}

var codeTexts = [...]string{
	OK: "OK", Canceled: "Canceled", Unknown: "Unknown", InvalidArgument: "InvalidArgument",
	DeadlineExceeded: "DeadlineExceeded", NotFound: "NotFound", AlreadyExists: "AlreadyExists",
	PermissionDenied: "PermissionDenied", ResourceExhausted: "ResourceExhausted", FailedPrecondition: "FailedPrecondition",
	Aborted: "Aborted", OutOfRange: "OutOfRange", Unimplemented: "Unimplemented", Internal: "Internal",
	Unavailable: "Unavailable", DataLoss: "DataLoss", Unauthenticated: "Unauthenticated", Uninitialized: "Uninitialized",
}

// String returns the textual code, or Code(n) for a number that is none.
func (c Code) String() string {
	if int(c) < len(codeTexts) {
		return codeTexts[c]
	}
	return fmt.Sprintf("Code(%d)", uint8(c))
}

// ParseCode returns the code with that text; ok is false when there is none.
func ParseCode(text string) (code Code, ok bool) {
	for i, t := range codeTexts {
		if t == text {
			return Code(i), true
		}
	}
	return Unknown, false
}

// Op names a method of Driver or Sweeper in errors, metrics and spans.
type Op string

// The operations. Those that Machine Controller Manager has, too, have the names of its metrics.
const (
	OpCreate     Op = "create_machine"
	OpInitialize Op = "initialize_machine"
	OpDelete     Op = "delete_machine"
	OpStatus     Op = "get_machine_status"
	OpList       Op = "list_machine"
	OpVolumeIDs  Op = "get_volume_ids"
	OpFields     Op = "get_unknown_fields"
	OpScope      Op = "scope"
	OpResources  Op = "list_resources"
	OpSweep      Op = "delete_resource"
)

// Error is the only kind of error that a Driver returns.
type Error struct {
	Code Code
	Op   Op
	// RetryAfter is the wait that the cloud requests; 0 when it requests none.
	RetryAfter time.Duration
	// Pending reports that the cloud has neither refused the request nor failed to answer it: what was
	// requested is being carried out, or the request was not sent yet, because its turn has not come
	// or the driver's process does not run. Such an error does not count against the account, see
	// controllers/machine/cloud/breaker.
	Pending bool
	// Throttled reports that the cloud has refused the request because there were too many, or that
	// the driver has not sent it for that reason. The code is Unavailable, since a lack of quota or
	// capacity is another thing: the cluster-autoscaler would use another node group.
	Throttled bool
	// Err is the cause, and carries the message for people, see Message.
	Err error
}

// Error returns operation, code and message.
func (e *Error) Error() string {
	if e.Err == nil {
		return fmt.Sprintf("%s: %s", e.Op, e.Code)
	}
	return fmt.Sprintf("%s: %s: %s", e.Op, e.Code, e.Message())
}

// Message returns the text of the cause as it may be shown to people, see Clean; "" when there is
// no cause. It begins with the throttling, if that is the cause, and what the cloud has said about
// when to come back. The text of a cloud gets into statuses, Events and logs only through Message.
func (e *Error) Message() string {
	if e.Err == nil {
		return ""
	}
	text := e.Err.Error()
	switch wait := RetryAfterOf(e); {
	case e.Throttled && wait > 0:
		text = fmt.Sprintf("throttled, to be repeated after %s: %s", max(wait.Round(time.Second), time.Second), text)
	case e.Throttled:
		text = "throttled: " + text
	}
	return Clean(text)
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Errorf creates an Error whose cause is the formatted text; %w wraps.
func Errorf(op Op, code Code, format string, args ...any) *Error {
	return &Error{Code: code, Op: op, Err: fmt.Errorf(format, args...)}
}

// Pendingf is Errorf with Pending set.
func Pendingf(op Op, code Code, format string, args ...any) *Error {
	err := Errorf(op, code, format, args...)
	err.Pending = true
	return err
}

// Throttledf returns an Error, Unavailable, of a request that was refused because there were too
// many; wait is the time that the cloud requests, 0 for none.
func Throttledf(op Op, wait time.Duration, format string, args ...any) *Error {
	err := Errorf(op, Unavailable, format, args...)
	err.Throttled, err.RetryAfter = true, wait
	return err
}

// CodeOf returns the code of err: OK for nil, and Unknown for an error that is not a driver's.
func CodeOf(err error) Code {
	if err == nil {
		return OK
	}
	if de, ok := errors.AsType[*Error](err); ok {
		return de.Code
	}
	return Unknown
}

// throttled is the kind of an Error that is Throttled.
const throttled = "Throttled"

// KindOf returns the text of the code of err, or Throttled if it is that: for metrics, where
// throttling must not look like an outage.
func KindOf(err error) string {
	if IsThrottled(err) {
		return throttled
	}
	return CodeOf(err).String()
}

// MessageOf returns the text of an error of a driver as it may be shown: its Message, without
// operation and code.
func MessageOf(err error) string {
	if de, ok := errors.AsType[*Error](err); ok && de.Err != nil {
		return de.Message()
	}
	return Clean(err.Error())
}

// RetryAfterOf returns the wait that the cloud requested, at most MaxRetryAfter, and 0 when it
// requested none.
func RetryAfterOf(err error) time.Duration {
	if de, ok := errors.AsType[*Error](err); ok {
		return min(max(de.RetryAfter, 0), MaxRetryAfter)
	}
	return 0
}

// IsPending reports whether err is an Error that is Pending.
func IsPending(err error) bool {
	de, ok := errors.AsType[*Error](err)
	return ok && de.Pending
}

// IsThrottled reports whether err is an Error that is Throttled.
func IsThrottled(err error) bool {
	de, ok := errors.AsType[*Error](err)
	return ok && de.Throttled
}
