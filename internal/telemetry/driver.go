package telemetry

import (
	"context"
	"errors"

	"go.opentelemetry.io/otel/trace"

	"github.com/machine-controller-fleet/machine-controller-fleet/driver"
)

// TraceDriver returns a driver that starts a span for every call that sends requests, and counts
// the calls; metrics may be nil.
func TraceDriver(d driver.Driver, provider string, tracer trace.Tracer, metrics *DriverMetrics) driver.Driver {
	return driver.Around(d, tracedDriver{provider, tracer, metrics}.call)
}

type tracedDriver struct {
	provider string
	tracer   trace.Tracer
	metrics  *DriverMetrics
}

// call sends a call in a span, and makes sure that what it returns is a *driver.Error or nil.
func (d tracedDriver) call(ctx context.Context, c driver.Call, next func(context.Context) error) error {
	pass := ctx
	if c.Op == driver.OpCreate || c.Op == driver.OpInitialize || c.Op == driver.OpDelete || c.Op == driver.OpSweep {
		d.requested(ctx, c)
	}
	ctx, span := d.tracer.Start(ctx, "driver."+c.Method, trace.WithSpanKind(trace.SpanKindClient))
	defer span.End()
	d.describeCall(ctx, span, c.Target)
	end := d.metrics.begin(ctx, d.provider, c.Op)
	err := next(ctx)
	end(err)
	if err == nil {
		return nil
	}
	if _, typed := errors.AsType[*driver.Error](err); !typed {
		err = &driver.Error{Code: driver.Unknown, Op: c.Op, Err: err}
	}
	describeAnswer(span, err)
	if span.IsRecording() && !isAnswer(driver.CodeOf(err)) {
		failPass(pass, err)
	}
	return err
}

// requested writes a span of no duration before a call that changes something, in the trace of the
// stage: that of the call itself is lost if this process dies in it, and so are those of its pass.
func (d tracedDriver) requested(ctx context.Context, c driver.Call) {
	pass, traced := ctx.Value(passKey{}).(tracedPass)
	if !traced || !pass.span.SpanContext().IsSampled() || pass.stage == (Stage{}) {
		return
	}
	marked, span := pass.span.TracerProvider().Tracer(Scope).Start(pass.stage.in(ctx), "driver."+c.Method+" requested",
		trace.WithAttributes(text(rootUIDKey, pass.root)))
	d.describeCall(marked, span, c.Target)
	span.End()
}

// describeCall records on a span what is called for which machine, and under which ownership.
func (d tracedDriver) describeCall(ctx context.Context, span trace.Span, t driver.Target) {
	if !span.IsRecording() {
		return
	}
	span.SetAttributes(text(providerKey, d.provider))
	if t.Machine != nil {
		span.SetAttributes(identity(t.Machine)...)
	}
	span.SetAttributes(OwnerAttributes(ctx)...)
}

// describeAnswer records on a span with which code a cloud has refused a call, and for how long no
// call is to be sent.
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

// isAnswer reports whether a code is a normal answer of a cloud and no failure: every machine's
// life has some of these, and spans marked as errors would hide the real ones.
func isAnswer(code driver.Code) bool {
	return code == driver.NotFound || code == driver.Unimplemented || code == driver.Uninitialized
}
