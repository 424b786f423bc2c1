package telemetry

import (
	"context"
	"strings"
	"time"
	"unicode"

	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"
)

// Names of spans below that of a pass, in addition to those of requests and calls of drivers.
const (
	// QueueSpan is the time for which the key has waited for a worker.
	QueueSpan = "queue"
	// ObserveSpan is the time in which the world was collected from the caches, and by live reads
	// where these miss something.
	ObserveSpan = "observe"
	// WaitSpan begins the names of spans of times in which an object waited.
	WaitSpan = "wait for "

	passPrefix = "reconcile "
)

// PassSpan returns the name of the span of a pass.
func PassSpan(controller string) string { return passPrefix + controller }

// StepSpan returns the name of the span of a decision and the action that follows from it: create
// VM, for CreateVM.
func StepSpan(action string) string {
	var name strings.Builder
	for i, r := range action {
		begins := unicode.IsUpper(r) && i > 0 && !unicode.IsUpper(rune(action[i-1]))
		if begins {
			name.WriteByte(' ')
		}
		if i == 0 {
			r = unicode.ToLower(r)
		}
		name.WriteRune(r)
	}
	return name.String()
}

// Pass contains what is known of a pass when it begins.
type Pass struct {
	Controller, Key string
	// Root is the UID of the root of the key's object, by which the pass is sampled; "" when it is not
	// known.
	Root string
	// Stage is the one in whose trace the pass is; the zero Stage if the pass is a trace.
	Stage Stage
	// Queued is when the key was added to the queue, and Began when the pass began.
	Queued, Began time.Time
}

type passKey struct{}

// tracedPass is the pass in a context whose span is recorded.
type tracedPass struct {
	span  trace.Span
	root  string
	stage Stage
}

// failPass marks the pass in ctx as failed, and the step of it.
func failPass(ctx context.Context, err error) {
	Fail(trace.SpanFromContext(ctx), err)
	if pass, ok := ctx.Value(passKey{}).(tracedPass); ok {
		Fail(pass.span, err)
	}
}

// Traces reports whether a tracer creates spans at all, so that what only spans need is not
// computed otherwise.
func Traces(tracer trace.Tracer) bool {
	_, idle := tracer.(noop.Tracer)
	return !idle
}

// StartPass starts the span of a pass, which begins with the time in the queue. The caller ends it.
func StartPass(ctx context.Context, tracer trace.Tracer, p Pass) (context.Context, trace.Span) {
	ctx, span := tracer.Start(p.Stage.in(ctx), PassSpan(p.Controller), trace.WithTimestamp(p.Queued),
		trace.WithAttributes(text(rootUIDKey, p.Root)))
	if !span.IsRecording() {
		return ctx, span
	}
	span.SetAttributes(text(keyKey, p.Key), controllerKey.String(p.Controller))
	span.SetAttributes(OwnerAttributes(ctx)...)
	if owner, ok := OwnerFrom(ctx); ok {
		LinkTo(ctx, owner.Arrival)
	}
	ctx = context.WithValue(ctx, passKey{}, tracedPass{span, p.Root, p.Stage})
	_, queue := Step(ctx, QueueSpan, trace.WithTimestamp(p.Queued))
	queue.End(trace.WithTimestamp(p.Began))
	return ctx, span
}
