package telemetry

import (
	"testing"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
)

func TestTraceIDIsThatOfASampledTrace(t *testing.T) {
	if id, ok := TraceID(t.Context()); ok || id != "" {
		t.Errorf("without a span: %q, %v", id, ok)
	}
	for name, tc := range map[string]struct {
		sampler sdktrace.Sampler
		want    bool
	}{
		"sampled":     {sdktrace.AlwaysSample(), true},
		"not sampled": {sdktrace.NeverSample(), false},
	} {
		ctx, span := sdktrace.NewTracerProvider(sdktrace.WithSampler(tc.sampler)).Tracer("test").Start(t.Context(), "s")
		id, ok := TraceID(ctx)
		if ok != tc.want || ok && id != span.SpanContext().TraceID().String() {
			t.Errorf("%s: %q, %v", name, id, ok)
		}
		span.End()
	}
}
