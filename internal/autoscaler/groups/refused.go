package groups

import "fmt"

// Code is the kind of a RefusedError.
type Code int

// The codes. They have the meaning of those of gRPC with the same names.
const (
	// InvalidArgument means that no state makes the call valid.
	InvalidArgument Code = iota + 1
	// NotFound means that the namespace has no such group, Node or instance.
	NotFound
	// FailedPrecondition means that the call has no effect now, and that a client has to wait until
	// something else changes.
	FailedPrecondition
	// Unimplemented means that the client has to use what it has without the answer.
	Unimplemented
)

// RefusedError is the error of a call that has no effect: what was expected, what came, and what to
// do.
type RefusedError struct {
	Code    Code
	Message string
}

// Error returns the message.
func (r *RefusedError) Error() string { return r.Message }

func refuse(code Code, format string, args ...any) error {
	return &RefusedError{Code: code, Message: fmt.Sprintf(format, args...)}
}
