package telemetry

import (
	"context"

	"go.opentelemetry.io/otel/trace"
)

// TraceID returns the ID of the trace in ctx as hexadecimal digits, for logs and exemplars; ok is
// false when the trace is not sampled, so that the ID would lead nowhere, and when there is none.
func TraceID(ctx context.Context) (id string, ok bool) {
	span := trace.SpanContextFromContext(ctx)
	if !span.IsValid() || !span.IsSampled() {
		return "", false
	}
	return span.TraceID().String(), true
}
