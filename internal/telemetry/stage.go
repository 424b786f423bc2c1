package telemetry

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"math/rand/v2"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Stage is a part of the life of an object that is one trace, whichever replicas work on it: the
// creation of a machine, its deletion, a rollout. The IDs of the trace and of its root span follow
// from the Stage, so that replicas need not agree on them. The zero Stage is none.
type Stage struct {
	// Name is that of the root span, such as "create machine".
	Name string
	// ID distinguishes the stage from others of its name: the UID of the object, and which time it is,
	// where there are several.
	ID string
}

// TraceID returns the ID of the stage's trace as hexadecimal digits.
func (s Stage) TraceID() string { return s.root().TraceID().String() }

// root returns the context of the root span.
func (s Stage) root() trace.SpanContext {
	sum := sha256.Sum256([]byte(s.Name + "/" + s.ID))
	return trace.NewSpanContext(trace.SpanContextConfig{
		TraceID: trace.TraceID(sum[:16]), SpanID: trace.SpanID(sum[16:24]), TraceFlags: trace.FlagsSampled, Remote: true,
	})
}

// in returns a context in which spans begin below the root span of the stage.
func (s Stage) in(ctx context.Context) context.Context {
	if s == (Stage{}) {
		return ctx
	}
	return trace.ContextWithRemoteSpanContext(ctx, s.root())
}

// Interval is a time from one instant to another one.
type Interval struct{ From, To time.Time }

// EndStage writes the root span of a stage that has ended. The pass that ends the stage calls it,
// once; failure is why the stage has failed, "" if it has not. Nothing happens where the pass is
// not recorded.
func EndStage(ctx context.Context, s Stage, root string, about metav1.Object, took Interval, failure string) {
	pass := trace.SpanFromContext(ctx)
	if !pass.IsRecording() || s == (Stage{}) {
		return
	}
	_, span := pass.TracerProvider().Tracer(Scope).Start(context.WithValue(ctx, idsKey{}, s.root()), s.Name,
		trace.WithNewRoot(), trace.WithTimestamp(took.From), trace.WithAttributes(text(rootUIDKey, root)))
	span.SetAttributes(identity(about)...)
	LinkTo(trace.ContextWithSpan(ctx, span), originOf(about))
	if failure != "" {
		failWith(span, failure)
	}
	span.End(trace.WithTimestamp(took.To))
}

// Wait is a time in which an object waited for something, with what that is: one of few texts.
type Wait struct {
	Interval

	Stage Stage
	For   string
}

// Waited writes the span of a wait that has ended, in the trace of its stage.
func Waited(ctx context.Context, tracer trace.Tracer, root string, w Wait) {
	_, span := tracer.Start(w.Stage.in(ctx), WaitSpan+w.For, trace.WithTimestamp(w.From), trace.WithAttributes(text(rootUIDKey, root)))
	span.SetAttributes(OwnerAttributes(ctx)...)
	span.End(trace.WithTimestamp(w.To))
}

type idsKey struct{}

// StageIDs generates the IDs of spans: those that EndStage demands, or else random ones. A provider
// without it creates root spans of stages that are in no trace of theirs.
type StageIDs struct{}

var _ sdktrace.IDGenerator = StageIDs{}

// NewIDs returns the IDs of a span without a parent.
func (s StageIDs) NewIDs(ctx context.Context) (of trace.TraceID, span trace.SpanID) {
	if is, demanded := ctx.Value(idsKey{}).(trace.SpanContext); demanded {
		return is.TraceID(), is.SpanID()
	}
	for !of.IsValid() {
		binary.NativeEndian.PutUint64(of[:8], rand.Uint64()) //nolint:gosec // IDs are no secrets
		binary.NativeEndian.PutUint64(of[8:], rand.Uint64()) //nolint:gosec // IDs are no secrets
	}
	return of, s.NewSpanID(ctx, of)
}

// NewSpanID returns the ID of a span below another one.
func (StageIDs) NewSpanID(context.Context, trace.TraceID) (id trace.SpanID) {
	for !id.IsValid() {
		binary.NativeEndian.PutUint64(id[:], rand.Uint64()) //nolint:gosec // IDs are no secrets
	}
	return id
}
