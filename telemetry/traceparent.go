package telemetry

import (
	"context"

	"go.opentelemetry.io/otel/propagation"
)

// Traceparent returns the W3C traceparent of the span in ctx, to be noted on objects that the span makes; "" when there
// is no span.
func Traceparent(ctx context.Context) string {
	carrier := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(ctx, carrier)
	return carrier.Get("traceparent")
}
