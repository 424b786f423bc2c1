package telemetry

import (
	"context"
	"errors"

	"go.opentelemetry.io/otel/trace"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/driver"
)

// TracedDriver starts a span for every call of a driver that makes requests, and counts the calls.
type TracedDriver struct {
	driver.Driver
	Provider string
	Tracer   trace.Tracer
	Metrics  *DriverMetrics // nil counts nothing
}

var _ driver.Sweeper = (*TracedDriver)(nil)

// Unwrap returns the driver whose calls are traced.
func (d *TracedDriver) Unwrap() driver.Driver { return d.Driver }

// call runs f in a span, and makes sure that what it returns is a *driver.Error or nil.
func call[Resp any](ctx context.Context, d *TracedDriver, name string, op driver.Op, t driver.Target, f func(context.Context) (Resp, error)) (Resp, error) {
	pass := ctx
	if op == driver.OpCreate || op == driver.OpInitialize || op == driver.OpDelete || op == driver.OpSweep {
		d.requested(ctx, name, t)
	}
	ctx, span := d.Tracer.Start(ctx, "driver."+name, trace.WithSpanKind(trace.SpanKindClient))
	defer span.End()
	d.describeCall(ctx, span, t)
	end := d.Metrics.begin(ctx, d.Provider, op)
	resp, err := f(ctx)
	end(err)
	if err == nil {
		return resp, nil
	}
	if _, typed := errors.AsType[*driver.Error](err); !typed {
		err = &driver.Error{Code: driver.Unknown, Op: op, Err: err}
	}
	describeAnswer(span, err)
	if span.IsRecording() && !isAnswer(driver.CodeOf(err)) {
		failPass(pass, err)
	}
	return resp, err
}

// requested writes a span of no duration before a call that changes something, in the trace of the stage: that of the call itself is lost if
// this process dies in it, and so are those of its pass.
func (d *TracedDriver) requested(ctx context.Context, name string, t driver.Target) {
	pass, traced := ctx.Value(passKey{}).(tracedPass)
	if !traced || !pass.span.SpanContext().IsSampled() || pass.stage == (Stage{}) {
		return
	}
	marked, span := pass.span.TracerProvider().Tracer(Scope).Start(pass.stage.in(ctx), "driver."+name+" requested", trace.WithAttributes(text(rootUIDKey, pass.root)))
	d.describeCall(marked, span, t)
	span.End()
}

// describeCall records on a span what is called for which machine, and under which ownership.
func (d *TracedDriver) describeCall(ctx context.Context, span trace.Span, t driver.Target) {
	if !span.IsRecording() {
		return
	}
	span.SetAttributes(text(providerKey, d.Provider))
	if t.Machine != nil {
		span.SetAttributes(identity(t.Machine)...)
	}
	span.SetAttributes(OwnerAttributes(ctx)...)
}

// describeAnswer records on a span with which code a cloud has refused a call, and for how long it wants to be left alone.
func describeAnswer(span trace.Span, err error) {
	if !span.IsRecording() {
		return
	}
	code := driver.CodeOf(err)
	span.SetAttributes(driverCodeKey.String(code.String()))
	if wait := driver.RetryAfterOf(err); wait > 0 {
		span.SetAttributes(retryAfterKey.Float64(wait.Seconds()))
	}
	if !isAnswer(code) {
		Fail(span, err)
	}
}

// isAnswer reports whether a code is a normal answer of a cloud and no failure: every machine's life has some of these, and
// spans marked as errors would hide the real ones.
func isAnswer(code driver.Code) bool {
	return code == driver.NotFound || code == driver.Unimplemented || code == driver.Uninitialized
}

// CreateMachine calls the driver in a span.
func (d *TracedDriver) CreateMachine(ctx context.Context, req driver.CreateMachineRequest) (driver.CreateMachineResponse, error) {
	return call(ctx, d, "CreateMachine", driver.OpCreate, req.Target, func(ctx context.Context) (driver.CreateMachineResponse, error) {
		return d.Driver.CreateMachine(ctx, req)
	})
}

// InitializeMachine calls the driver in a span.
func (d *TracedDriver) InitializeMachine(ctx context.Context, req driver.InitializeMachineRequest) (driver.InitializeMachineResponse, error) {
	return call(ctx, d, "InitializeMachine", driver.OpInitialize, req.Target, func(ctx context.Context) (driver.InitializeMachineResponse, error) {
		return d.Driver.InitializeMachine(ctx, req)
	})
}

// DeleteMachine calls the driver in a span.
func (d *TracedDriver) DeleteMachine(ctx context.Context, req driver.DeleteMachineRequest) (driver.DeleteMachineResponse, error) {
	return call(ctx, d, "DeleteMachine", driver.OpDelete, req.Target, func(ctx context.Context) (driver.DeleteMachineResponse, error) {
		return d.Driver.DeleteMachine(ctx, req)
	})
}

// GetMachineStatus calls the driver in a span.
func (d *TracedDriver) GetMachineStatus(ctx context.Context, req driver.GetMachineStatusRequest) (driver.GetMachineStatusResponse, error) {
	return call(ctx, d, "GetMachineStatus", driver.OpStatus, req.Target, func(ctx context.Context) (driver.GetMachineStatusResponse, error) {
		return d.Driver.GetMachineStatus(ctx, req)
	})
}

// ListMachines calls the driver in a span.
func (d *TracedDriver) ListMachines(ctx context.Context, req driver.ListMachinesRequest) (driver.ListMachinesResponse, error) {
	return call(ctx, d, "ListMachines", driver.OpList, driver.Target{}, func(ctx context.Context) (driver.ListMachinesResponse, error) {
		return d.Driver.ListMachines(ctx, req)
	})
}

// GetVolumeIDs calls the driver in a span.
func (d *TracedDriver) GetVolumeIDs(ctx context.Context, req driver.GetVolumeIDsRequest) (driver.GetVolumeIDsResponse, error) {
	return call(ctx, d, "GetVolumeIDs", driver.OpVolumeIDs, driver.Target{}, func(ctx context.Context) (driver.GetVolumeIDsResponse, error) {
		return d.Driver.GetVolumeIDs(ctx, req)
	})
}

// Scope calls the driver, which makes no request.
func (d *TracedDriver) Scope(req driver.ScopeRequest) (string, error) {
	sweeper, _ := driver.SweeperOf(d.Driver)
	return sweeper.Scope(req)
}

// ListResources calls the driver in a span.
func (d *TracedDriver) ListResources(ctx context.Context, req driver.ListResourcesRequest) (driver.ListResourcesResponse, error) {
	sweeper, _ := driver.SweeperOf(d.Driver)
	return call(ctx, d, "ListResources", driver.OpResources, driver.Target{}, func(ctx context.Context) (driver.ListResourcesResponse, error) {
		return sweeper.ListResources(ctx, req)
	})
}

// DeleteResource calls the driver in a span, which names the machine for which the resource was made.
func (d *TracedDriver) DeleteResource(ctx context.Context, req driver.DeleteResourceRequest) (driver.DeleteResourceResponse, error) {
	sweeper, _ := driver.SweeperOf(d.Driver)
	r := req.Resource
	madeFor := driver.Target{Machine: &v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: r.Namespace, Name: r.Machine, UID: r.MachineUID}}}
	return call(ctx, d, "DeleteResource", driver.OpSweep, madeFor, func(ctx context.Context) (driver.DeleteResourceResponse, error) {
		return sweeper.DeleteResource(ctx, req)
	})
}
