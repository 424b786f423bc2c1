package telemetry

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"
)

// Scope names the fleet's spans.
const Scope = "github.com/machine-controller-fleet/machine-controller-fleet"

// Step starts a span below the one in ctx. Where that one is not recorded, it returns ctx and a
// span that does nothing, so that a pass that is not traced costs nothing here. The caller ends the
// span.
func Step(ctx context.Context, name string, options ...trace.SpanStartOption) (context.Context, trace.Span) {
	parent := trace.SpanFromContext(ctx)
	if !parent.IsRecording() {
		return ctx, trace.SpanFromContext(context.Background()) //nolint:forbidigo // the span of no context is the one that does nothing
	}
	return parent.TracerProvider().Tracer(Scope).Start(ctx, name, options...) //nolint:spancheck // the caller ends it
}

// Decided records a verdict and its reason on a span: a code, of which there are few, or "", and a
// text. reason is called only where the span is recorded. Text of clouds, kubelets and users does
// not belong into a reason: traces are read by others than the objects.
func Decided(span trace.Span, verdict string, reason func() (code, why string)) {
	if !span.IsRecording() {
		return
	}
	span.SetAttributes(text(verdictKey, verdict))
	code, why := reason()
	for _, a := range []attribute.KeyValue{text(reasonKey, code), text(reasonTextKey, why)} {
		if a.Value.AsString() != "" {
			span.SetAttributes(a)
		}
	}
}

// Conflict records on the span of a pass that it has ended because another client had changed an
// object first.
func Conflict(span trace.Span) { span.SetAttributes(conflictKey.Bool(true)) }
