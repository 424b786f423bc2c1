package driver

import (
	"context"
	"errors"
	"fmt"
)

// Redacted returns a driver whose answers do not have the secrets of the request: a cloud may echo
// the credentials or the user data that it was sent in the text of an error, and this text gets
// into statuses, Events, logs and traces, which others may read than Secrets. A driver's own notes
// about a machine, which are stored on it, are redacted, too, and so is the value of a panic. What
// is found is described at redactor.
func Redacted(d Driver) Driver {
	return redactedDriver{around{d, func(ctx context.Context, c Call, next func(context.Context) error) error {
		r := of(c.Target, c.UserData)
		err := r.guard(func() error { return next(ctx) })
		for _, text := range c.texts {
			*text = r.redact(*text)
		}
		return err
	}}}
}

type redactedDriver struct{ around }

// Scope redacts the error.
func (d redactedDriver) Scope(req ScopeRequest) (scope string, err error) {
	err = redactor{secret: req.Secret}.guard(func() (err error) {
		scope, err = d.around.Scope(req)
		return err
	})
	return scope, err
}

// guard returns the error of a call without secrets, and removes them from a panic.
func (r redactor) guard(call func() error) error {
	defer func() {
		if fault := recover(); fault != nil {
			panic(r.redact(fmt.Sprint(fault))) // the runner reports it, with the stack of the first panic
		}
	}()
	return r.redactError(call())
}

// of returns the redactor of a request about a machine.
func of(t Target, userData []byte) redactor {
	r := redactor{secret: t.Secret, userData: userData}
	if t.Machine != nil {
		r.public = []string{t.Machine.Name, t.Machine.Spec.ProviderID, string(t.Machine.UID)}
	}
	return r
}

// redactError returns an error with the same code and no secrets in its text. An error that has
// none is returned as it is; of another one the chain below the driver's error is lost, because its
// texts have the secrets, too.
func (r redactor) redactError(err error) error {
	if err == nil {
		return nil
	}
	typed, isTyped := errors.AsType[*Error](err)
	if !isTyped {
		typed = &Error{Code: Unknown, Err: err}
	}
	if typed.Err == nil {
		return err
	}
	text := typed.Err.Error()
	clean := r.redact(text)
	if clean == text {
		return err
	}
	return &Error{
		Code: typed.Code, Op: typed.Op, RetryAfter: typed.RetryAfter, Pending: typed.Pending, Throttled: typed.Throttled, Err: errors.New(clean),
	}
}
