package telemetry

import (
	"context"
	"sync"
	"time"

	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

// Keep selects traces that are exported although their root is not sampled. With it every pass is recorded, which costs about as much
// as sampling all roots does, without what exporting costs.
type Keep struct {
	// Failed keeps traces in which a span has failed.
	Failed bool
	// SlowerThan keeps traces whose work, without the time in the queue, took longer; 0 keeps none for that.
	SlowerThan time.Duration
}

func (k Keep) any() bool { return k.Failed || k.SlowerThan > 0 }

// Bounds on what is buffered. A pass has some ten spans and ends within seconds; what a pass has beyond the bound is dropped, with the
// first spans kept. Traces are as many as there are workers.
const (
	mostSpansOfTrace = 200
	mostTraces       = 5000
)

// keeper is a processor of spans that passes spans on which are sampled, and buffers the others until their trace has ended: it is then
// passed on as a whole, or dropped.
type keeper struct {
	keep Keep
	next sdktrace.SpanProcessor

	mu     sync.Mutex
	traces map[trace.TraceID]*buffered
}

// buffered are the spans of a trace that have ended, and what is known of it.
type buffered struct {
	spans  []sdktrace.ReadOnlySpan
	failed bool
	began  time.Time // when the work began, after the time in the queue; zero when that is not known
}

var _ sdktrace.SpanProcessor = (*keeper)(nil)

func newKeeper(keep Keep, next sdktrace.SpanProcessor) *keeper {
	return &keeper{keep: keep, next: next, traces: map[trace.TraceID]*buffered{}}
}

// OnStart begins to buffer a trace with its first span.
func (k *keeper) OnStart(parent context.Context, span sdktrace.ReadWriteSpan) {
	k.next.OnStart(parent, span)
	if span.SpanContext().IsSampled() || span.Parent().IsValid() {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.traces) < mostTraces {
		k.traces[span.SpanContext().TraceID()] = &buffered{}
	}
}

// OnEnd passes a span on, or buffers it. With the first span of a trace the trace ends.
func (k *keeper) OnEnd(span sdktrace.ReadOnlySpan) {
	if span.SpanContext().IsSampled() {
		k.next.OnEnd(span)
		return
	}
	for _, kept := range k.add(span) {
		k.next.OnEnd(keptSpan{kept})
	}
}

// add buffers a span, and returns the spans of a trace that ends with it and is kept.
func (k *keeper) add(span sdktrace.ReadOnlySpan) []sdktrace.ReadOnlySpan {
	k.mu.Lock()
	defer k.mu.Unlock()
	id := span.SpanContext().TraceID()
	b := k.traces[id]
	if b == nil {
		return nil // the trace has ended, or there were too many
	}
	b.failed = b.failed || span.Status().Code == codes.Error
	isFirst := !span.Parent().IsValid()
	if isFirst || len(b.spans) < mostSpansOfTrace {
		b.spans = append(b.spans, span)
	}
	if span.Name() == QueueSpan {
		b.began = span.EndTime()
	}
	if !isFirst {
		return nil
	}
	delete(k.traces, id)
	if k.wants(b, span) {
		return b.spans
	}
	return nil
}

// wants reports whether a trace is kept that ends with its first span.
func (k *keeper) wants(b *buffered, first sdktrace.ReadOnlySpan) bool {
	began := first.StartTime()
	if b.began.After(began) {
		began = b.began
	}
	return k.keep.Failed && b.failed || k.keep.SlowerThan > 0 && first.EndTime().Sub(began) > k.keep.SlowerThan
}

// Shutdown drops what is buffered, and stops the processor below.
func (k *keeper) Shutdown(ctx context.Context) error {
	k.mu.Lock()
	clear(k.traces)
	k.mu.Unlock()
	return k.next.Shutdown(ctx)
}

// ForceFlush sends what was passed on.
func (k *keeper) ForceFlush(ctx context.Context) error { return k.next.ForceFlush(ctx) }

// keptSpan is a span that is exported as if it had been sampled.
type keptSpan struct{ sdktrace.ReadOnlySpan }

// SpanContext returns the context of the span, sampled.
func (s keptSpan) SpanContext() trace.SpanContext {
	is := s.ReadOnlySpan.SpanContext()
	return is.WithTraceFlags(is.TraceFlags().WithSampled(true))
}
