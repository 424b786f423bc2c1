package driver

import (
	"context"
	"errors"
	"fmt"
)

// Redacted returns a driver whose answers do not have the secrets of the request: a cloud may echo the credentials or the user data
// that it was sent in the text of an error, and this text gets into statuses, Events, logs and traces, which others may read than
// Secrets. A driver's own notes about a machine, which are stored on it, are redacted, too, and so is the value of a panic. What is
// found is described at redactor.
func Redacted(d Driver) Driver { return redactedDriver{d} }

type redactedDriver struct{ next Driver }

var (
	_ Driver  = redactedDriver{}
	_ Sweeper = redactedDriver{}
)

// Unwrap returns the driver whose answers are redacted.
func (d redactedDriver) Unwrap() Driver { return d.next }

// redacted calls a driver, and returns its answer with an error that has no secrets. texts are the parts of the answer that are redacted, too.
func redacted[Resp any](r redactor, call func() (Resp, error), texts ...func(*Resp) *string) (resp Resp, err error) {
	defer func() {
		if fault := recover(); fault != nil {
			panic(r.redact(fmt.Sprint(fault))) // the runner reports it, with the stack of the first panic
		}
	}()
	resp, err = call()
	if err != nil {
		err = r.redactError(err)
	}
	for _, text := range texts {
		*text(&resp) = r.redact(*text(&resp))
	}
	return resp, err
}

// of returns the redactor of a request about a machine.
func of(t Target, userData []byte) redactor {
	r := redactor{secret: t.Secret, userData: userData}
	if t.Machine != nil {
		r.public = []string{t.Machine.Name, t.Machine.Spec.ProviderID, string(t.Machine.UID)}
	}
	return r
}

// redactError returns an error with the same code and no secrets in its text. An error that has none is returned as it is; of another
// one the chain below the driver's error is lost, because its texts have the secrets, too.
func (r redactor) redactError(err error) error {
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
	return &Error{Code: typed.Code, Op: typed.Op, RetryAfter: typed.RetryAfter, Pending: typed.Pending, Throttled: typed.Throttled, Err: errors.New(clean)}
}

// GetUnknownFields calls the driver, which gets no secrets.
func (d redactedDriver) GetUnknownFields(ctx context.Context, req GetUnknownFieldsRequest) (GetUnknownFieldsResponse, error) {
	return d.next.GetUnknownFields(ctx, req)
}

// CreateMachine redacts the error, the driver's note and the state of the VM.
func (d redactedDriver) CreateMachine(ctx context.Context, req CreateMachineRequest) (CreateMachineResponse, error) {
	return redacted(of(req.Target, req.UserData), func() (CreateMachineResponse, error) { return d.next.CreateMachine(ctx, req) },
		func(r *CreateMachineResponse) *string { return &r.LastKnownState }, func(r *CreateMachineResponse) *string { return &r.State })
}

// InitializeMachine redacts the error and the state of the VM.
func (d redactedDriver) InitializeMachine(ctx context.Context, req InitializeMachineRequest) (InitializeMachineResponse, error) {
	return redacted(of(req.Target, nil), func() (InitializeMachineResponse, error) { return d.next.InitializeMachine(ctx, req) },
		func(r *InitializeMachineResponse) *string { return &r.State })
}

// DeleteMachine redacts the error and the driver's note.
func (d redactedDriver) DeleteMachine(ctx context.Context, req DeleteMachineRequest) (DeleteMachineResponse, error) {
	return redacted(of(req.Target, nil), func() (DeleteMachineResponse, error) { return d.next.DeleteMachine(ctx, req) },
		func(r *DeleteMachineResponse) *string { return &r.LastKnownState })
}

// GetMachineStatus redacts the error and the state of the VM.
func (d redactedDriver) GetMachineStatus(ctx context.Context, req GetMachineStatusRequest) (GetMachineStatusResponse, error) {
	return redacted(of(req.Target, nil), func() (GetMachineStatusResponse, error) { return d.next.GetMachineStatus(ctx, req) },
		func(r *GetMachineStatusResponse) *string { return &r.State })
}

// ListMachines redacts the error.
func (d redactedDriver) ListMachines(ctx context.Context, req ListMachinesRequest) (ListMachinesResponse, error) {
	return redacted(redactor{secret: req.Secret}, func() (ListMachinesResponse, error) { return d.next.ListMachines(ctx, req) })
}

// GetVolumeIDs calls the driver, which gets no secrets.
func (d redactedDriver) GetVolumeIDs(ctx context.Context, req GetVolumeIDsRequest) (GetVolumeIDsResponse, error) {
	return d.next.GetVolumeIDs(ctx, req)
}

// Scope redacts the error.
func (d redactedDriver) Scope(req ScopeRequest) (string, error) {
	sweeper, _ := SweeperOf(d.next)
	return redacted(redactor{secret: req.Secret}, func() (string, error) { return sweeper.Scope(req) })
}

// ListResources redacts the error.
func (d redactedDriver) ListResources(ctx context.Context, req ListResourcesRequest) (ListResourcesResponse, error) {
	sweeper, _ := SweeperOf(d.next)
	return redacted(redactor{secret: req.Secret}, func() (ListResourcesResponse, error) { return sweeper.ListResources(ctx, req) })
}

// DeleteResource redacts the error.
func (d redactedDriver) DeleteResource(ctx context.Context, req DeleteResourceRequest) (DeleteResourceResponse, error) {
	sweeper, _ := SweeperOf(d.next)
	return redacted(redactor{secret: req.Secret}, func() (DeleteResourceResponse, error) { return sweeper.DeleteResource(ctx, req) })
}
