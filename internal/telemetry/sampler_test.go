package telemetry

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"go.opentelemetry.io/otel/attribute"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

func TestRootsAreChosenByTheirUID(t *testing.T) {
	const roots = 20000
	for _, ratio := range []float64{0, 0.01, 0.1, 0.5, 1} {
		chosen := 0
		for i := range roots {
			root := fmt.Sprintf("0b5c7a1e-%04x-4f2e-8d5a-000000000000", i)
			if !IsChosen(root, ratio) {
				continue
			}
			chosen++
			if !IsChosen(root, min(ratio*2, 1)) {
				t.Fatalf("%s is chosen at %g and not at a higher ratio", root, ratio)
			}
		}
		if got := float64(chosen) / roots; math.Abs(got-ratio) > 0.01 {
			t.Errorf("ratio %g: %g are chosen", ratio, got)
		}
	}
	if IsChosen("", 0.99) || !IsChosen("", 1) {
		t.Error("an unknown root is chosen at the ratio 1 only")
	}
}

// All spans of a pass follow the decision about its root, in every process.
func TestSpansFollowTheDecisionAboutTheirRoot(t *testing.T) {
	chosen, other := rootWith(t, 0.5, true), rootWith(t, 0.5, false)
	for name, tc := range map[string]struct {
		sampler             lifetimes
		attributes          []attribute.KeyValue
		sampled, isRecorded bool
	}{
		"a chosen root":                         {lifetimes{ratio: 0.5}, []attribute.KeyValue{rootUIDKey.String(chosen)}, true, true},
		"another root":                          {lifetimes{ratio: 0.5}, []attribute.KeyValue{rootUIDKey.String(other)}, false, false},
		"a span that is about no root":          {lifetimes{ratio: 0.001}, nil, true, true},
		"a span that is about no root, and off": {lifetimes{}, nil, false, false},
	} {
		tracer := sdktrace.NewTracerProvider(sdktrace.WithSampler(tc.sampler)).Tracer("test")
		ctx, first := tracer.Start(t.Context(), "first", trace.WithAttributes(tc.attributes...))
		_, below := tracer.Start(ctx, "below")
		for _, span := range []trace.Span{first, below} {
			if span.SpanContext().IsSampled() != tc.sampled || span.IsRecording() != tc.isRecorded {
				t.Errorf("%s: sampled %v, recorded %v", name, span.SpanContext().IsSampled(), span.IsRecording())
			}
			span.End()
		}
	}
}

// rootWith returns a root that is chosen at the ratio, or one that is not.
func rootWith(t *testing.T, ratio float64, chosen bool) string {
	t.Helper()
	for i := range 1000 {
		if root := fmt.Sprintf("root-%d", i); IsChosen(root, ratio) == chosen {
			return root
		}
	}
	t.Fatal("none of 1000 roots")
	return ""
}

func TestSamplingRatioIsThatOfTheEnvironment(t *testing.T) {
	for _, tc := range []struct {
		sampler, argument string
		want              float64
		err               string
	}{
		{want: 1},
		{argument: "0.1", want: 1}, // the standard ignores it without a sampler
		{sampler: "always_on", want: 1},
		{sampler: "parentbased_always_on", argument: "0.1", want: 1},
		{sampler: "always_off"},
		{sampler: "parentbased_always_off"},
		{sampler: "traceidratio", want: 1},
		{sampler: "traceidratio", argument: "0.1", want: 0.1},
		{sampler: "parentbased_traceidratio", argument: "0", want: 0},
		{sampler: "traceidratio", argument: "1.1", err: `OTEL_TRACES_SAMPLER_ARG: expected a number from 0 to 1, got "1.1"`},
		{sampler: "traceidratio", argument: "NaN", err: `got "NaN"`},
		{sampler: "traceidratio", argument: "tenth", err: `got "tenth"`},
		{sampler: "jaeger_remote", err: `got "jaeger_remote"`},
	} {
		t.Setenv(samplerVariable, tc.sampler)
		t.Setenv(argumentVariable, tc.argument)
		got, err := samplingRatio()
		if got != tc.want || (err != nil) != (tc.err != "") || err != nil && !strings.Contains(err.Error(), tc.err) {
			t.Errorf("%+v: got %g, %v", tc, got, err)
		}
	}
}
