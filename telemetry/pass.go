package telemetry

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"
)

// Names of spans below that of a pass, beside those of requests and calls of drivers.
const (
	// QueueSpan is the time for which the key has waited for a worker.
	QueueSpan = "queue"
	// ObserveSpan is the time in which the world was collected from the caches, and by live reads where these miss something.
	ObserveSpan = "observe"
	// StepSpan is a decision, with its verdict and reason, and the action that follows from it.
	StepSpan = "step"
)

// PassSpan returns the name of the span of a pass.
func PassSpan(controller string) string { return "reconcile " + controller }

// Pass is what is known of a pass when it begins.
type Pass struct {
	Controller, Key string
	// Root is the UID of the root of the key's object, by which the pass is sampled; "" when it is not known.
	Root string
	// Queued is when the key was added to the queue, and Began when the pass began.
	Queued, Began time.Time
}

// Traces reports whether a tracer makes spans at all, so that what only spans need is not computed otherwise.
func Traces(tracer trace.Tracer) bool {
	_, idle := tracer.(noop.Tracer)
	return !idle
}

// StartPass starts the span of a pass, which begins with the time in the queue. The caller ends it.
func StartPass(ctx context.Context, tracer trace.Tracer, p Pass) (context.Context, trace.Span) {
	ctx, span := tracer.Start(ctx, PassSpan(p.Controller), trace.WithTimestamp(p.Queued), trace.WithAttributes(text(rootUIDKey, p.Root)))
	if !span.IsRecording() {
		return ctx, span
	}
	span.SetAttributes(text(keyKey, p.Key), controllerKey.String(p.Controller))
	span.SetAttributes(OwnerAttributes(ctx)...)
	if owner, ok := OwnerFrom(ctx); ok {
		LinkTo(ctx, owner.Arrival)
	}
	_, queue := Step(ctx, QueueSpan, trace.WithTimestamp(p.Queued))
	queue.End(trace.WithTimestamp(p.Began))
	return ctx, span
}
