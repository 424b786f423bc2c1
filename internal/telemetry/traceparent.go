package telemetry

import (
	"context"

	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

// Traceparent returns the W3C traceparent of the span in ctx, to be recorded on objects that the
// span creates or changes; "" when there is no span that is sampled.
func Traceparent(ctx context.Context) string {
	if !trace.SpanContextFromContext(ctx).IsSampled() {
		return ""
	}
	carrier := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(ctx, carrier)
	return carrier.Get("traceparent")
}

// LinkTo links the span in ctx to the one that a W3C traceparent names, such as one that was
// recorded on an object when it was created. Nothing happens when there is no span, no traceparent
// that can be read, or one of a span that is not sampled: the link would lead nowhere.
func LinkTo(ctx context.Context, traceparent string) {
	span := trace.SpanFromContext(ctx)
	if !span.IsRecording() {
		return
	}
	carrier := propagation.MapCarrier{"traceparent": traceparent}
	// Without a valid one the span stays a span of this process, and is not remote.
	if origin := trace.SpanContextFromContext(propagation.TraceContext{}.Extract(ctx, carrier)); origin.IsRemote() && origin.IsSampled() {
		span.AddLink(trace.Link{SpanContext: origin})
	}
}
