package telemetry

import (
	"fmt"
	"os"
	"strconv"

	"github.com/cespare/xxhash/v2"
	"go.opentelemetry.io/otel/attribute"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

const (
	samplerVariable  = "OTEL_TRACES_SAMPLER"
	argumentVariable = "OTEL_TRACES_SAMPLER_ARG"
)

// lifetimes is a sampler that decides by the root of a span's object, and not by the span: of a
// machine that is sampled all passes are, by every replica, and so are those of its MachineSet and
// MachineDeployment. So a link from one to another leads to a span that was exported.
//
// The sampling decision is taken where a pass begins, by the attribute mcf.root.uid. Spans without
// it, such as hand-overs, are rare and serve all lives: they are sampled unless nothing is. Spans
// below another follow that one.
type lifetimes struct {
	// ratio of the roots that are sampled, from 0 to 1.
	ratio float64
}

var _ sdktrace.Sampler = lifetimes{}

// Lifetimes returns a sampler of whole lives: of a ratio of roots, from 0 to 1, every pass of every
// owner is sampled.
func Lifetimes(ratio float64) sdktrace.Sampler { return lifetimes{ratio} }

// ShouldSample decides about a span when it starts.
func (l lifetimes) ShouldSample(p sdktrace.SamplingParameters) sdktrace.SamplingResult {
	parent := trace.SpanContextFromContext(p.ParentContext)
	sampled := parent.IsSampled()
	if !parent.IsValid() || parent.IsRemote() { // a remote one is that of a stage
		sampled = l.chooses(p.Attributes)
	}
	if sampled {
		return sdktrace.SamplingResult{Decision: sdktrace.RecordAndSample}
	}
	return sdktrace.SamplingResult{Decision: sdktrace.Drop}
}

// Description describes the sampler in the SDK's log.
func (l lifetimes) Description() string { return fmt.Sprintf("Lifetimes{%g}", l.ratio) }

func (l lifetimes) chooses(attributes []attribute.KeyValue) bool {
	for _, a := range attributes {
		if a.Key == rootUIDKey {
			return IsChosen(a.Value.AsString(), l.ratio)
		}
	}
	return l.ratio > 0
}

// IsChosen reports whether a root is among the given ratio of all roots. A root that is chosen at
// one ratio is chosen at each higher one. With an unknown root, "", only the ratio 1 chooses.
func IsChosen(root string, ratio float64) bool {
	if root == "" {
		return ratio >= 1
	}
	const bits = 53 // of a float64 without an exponent
	return float64(xxhash.Sum64String(root)>>(64-bits))/(1<<bits) < ratio
}

// samplingRatio returns the ratio of roots to sample that the OTEL_* variables configure: 1 without
// any. Errors: an unknown sampler, and an argument that is no number from 0 to 1.
func samplingRatio() (float64, error) {
	switch sampler := os.Getenv(samplerVariable); sampler {
	case "", "always_on", "parentbased_always_on":
		return 1, nil
	case "always_off", "parentbased_always_off":
		return 0, nil
	case "traceidratio", "parentbased_traceidratio":
		text := os.Getenv(argumentVariable)
		if text == "" {
			return 1, nil
		}
		ratio, err := strconv.ParseFloat(text, 64)
		if err != nil || !(ratio >= 0 && ratio <= 1) {
			return 0, fmt.Errorf("%s: expected a number from 0 to 1, got %q", argumentVariable, text)
		}
		return ratio, nil
	default:
		return 0, fmt.Errorf("%s: expected always_on, always_off, traceidratio, or one of them with parentbased_ before it, got %q",
			samplerVariable, sampler)
	}
}
