package runner

import (
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// NotOurs reports whether an error, or one that it wraps, means that the work was not begun because
// another replica may own it: such an error has a method NotOurs that returns true. It is no
// failure of the key.
func NotOurs(err error) bool {
	refusal, ok := errors.AsType[interface {
		error
		NotOurs() bool
	}](err)
	return ok && refusal.NotOurs()
}

// waitOf returns after which time a key is reconciled again if an error, or one that it wraps,
// means that the work has to wait for something which is reported elsewhere: such an error has a
// method Wait. It is no failure of the key.
func waitOf(err error) (time.Duration, bool) {
	waits, ok := errors.AsType[interface {
		error
		Wait() time.Duration
	}](err)
	if !ok {
		return 0, false
	}
	return waits.Wait(), true
}

// Waits reports whether an error, or one that it wraps, means that the work has to wait for
// something else, and shows nothing about what was to be done.
func Waits(err error) bool {
	_, waits := waitOf(err)
	return waits
}

// isConflict reports whether an error is a conflict of a write with that of another client, and
// nothing else.
func isConflict(err error) bool { return all(err, apierrors.IsConflict) }

// isRefusedByEnding reports whether an error is the refusal to create an object in a namespace that
// is being deleted, and nothing else. It is no failure: nothing can be created there any more, and
// the objects that exist are deleted next.
func isRefusedByEnding(err error) bool {
	return all(err, func(one error) bool { return apierrors.HasStatusCause(one, corev1.NamespaceTerminatingCause) })
}

// all reports whether something holds for an error; for several errors, whether it holds for each.
func all(err error, holds func(error) bool) bool {
	if several, ok := errors.AsType[interface {
		error
		Unwrap() []error
	}](err); ok {
		return !slices.ContainsFunc(several.Unwrap(), func(one error) bool { return !all(one, holds) })
	}
	return holds(err)
}

// endingInterval is how often it is logged that a namespace accepts no objects: it has mostly been
// deleted by then.
const endingInterval = time.Hour

// errPanicked takes the place of a panic in traces: its value and its stack may contain anything.
var errPanicked = errors.New("the pass has panicked; the log of the replica has the stack")

// withoutStack returns an error as it is shown in traces.
func withoutStack(err error) error {
	if _, panicked := errors.AsType[*PanicError](err); panicked {
		return errPanicked
	}
	return err
}

// PanicError is a panic of a reconcile function, as an error.
type PanicError struct {
	Value any
	Stack []byte
}

// Error returns the panic's value and its stack.
func (e *PanicError) Error() string { return fmt.Sprintf("panic: %v\n%s", e.Value, e.Stack) }
