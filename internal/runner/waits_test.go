package runner

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"k8s.io/apimachinery/pkg/types"

	"github.com/machine-controller-fleet/machine-controller-fleet/internal/telemetry"
)

// waitVerdict rests, and waits for what it is.
type waitVerdict string

func (waitVerdict) Next() (action string, rest bool) { return "Rest", true }
func (waitVerdict) Reason() (code, text string)      { return "", "" }
func (v waitVerdict) Waits() string                  { return string(v) }

// What an object waits for is one span from the first pass that rests for it until the pass that
// does not any more, in the trace of the stage in which the wait began.
func TestWaitsAreTraced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		recorder := tracetest.NewSpanRecorder()
		waitsFor, stage := waitVerdict(""), telemetry.Stage{Name: "create machine", ID: "u"}
		pass := Pass[*struct{}, waitVerdict]{
			Decide: func(*struct{}) waitVerdict { return waitsFor },
			Rest:   func(context.Context, *struct{}, waitVerdict) (Result, error) { return Result{}, nil },
		}
		r, err := New(Config[types.NamespacedName]{
			Name: "machine", Tracer: sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(recorder)).Tracer(""),
			Reconcile: func(ctx context.Context, _ types.NamespacedName) (Result, error) { return pass.Run(ctx, nil) },
			Stage:     func(types.NamespacedName) telemetry.Stage { return stage },
		})
		if err != nil {
			t.Fatal(err)
		}
		defer r.queue.ShutDown()
		key := types.NamespacedName{Namespace: "ns", Name: "m"}
		for _, v := range []waitVerdict{"", "a Node to appear", "a Node to appear", "a healthy Node"} {
			waitsFor = v
			if _, err := r.reconcile(t.Context(), key); err != nil {
				t.Fatal(err)
			}
			time.Sleep(5 * time.Second)
		}
		if r.Drop(types.NamespacedName{}); len(r.waits) != 1 {
			t.Error("another key was dropped")
		}
		waitsFor, stage = "", telemetry.Stage{}
		if _, err := r.reconcile(t.Context(), key); err != nil {
			t.Fatal(err)
		}
		got := map[string]time.Duration{}
		for _, span := range recorder.Ended() {
			if len(span.Name()) > len(telemetry.WaitSpan) && span.Name()[:len(telemetry.WaitSpan)] == telemetry.WaitSpan {
				got[span.Name()+" in "+span.SpanContext().TraceID().String()] = span.EndTime().Sub(span.StartTime())
			}
		}
		of := telemetry.Stage{Name: "create machine", ID: "u"}.TraceID()
		want := map[string]time.Duration{
			"wait for a Node to appear in " + of: 10 * time.Second, "wait for a healthy Node in " + of: 5 * time.Second,
		}
		if diff := cmp.Diff(want, got); diff != "" || len(r.waits) != 0 {
			t.Errorf("waits (-want +got):\n%s\nremembered: %v", diff, r.waits)
		}
	})
}

// TestKnownEventsEnqueueNothing: whether a pass knows what has happened is asked when it has ended.
func TestKnownEventsEnqueueNothing(t *testing.T) {
	for name, known := range map[string]bool{"known": true, "unknown": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var runs, written atomic.Int32
				r := start(t, Config[string]{Reconcile: func(context.Context, string) (Result, error) {
					runs.Add(1)
					time.Sleep(time.Second)
					written.Store(1) // the pass learns only now of what it has written
					return Result{}, nil
				}})
				happens := func() { r.EnqueueUnless("key", func() bool { return known && written.Load() > 0 }) }
				happens() // before any pass
				elapse(500 * time.Millisecond)
				happens()
				elapse(time.Minute)
				happens()
				elapse(time.Minute)
				want := int32(3)
				if known {
					want = 1
				}
				if got := runs.Load(); got != want {
					t.Errorf("%d runs, want %d", got, want)
				}
				if len(r.inWork) > 0 {
					t.Errorf("keys that have no pass: %v", r.inWork)
				}
			})
		})
	}
}

// TestWhatHappensSoonAfterAPassIsGathered: the first change begins a pass at once, and those within
// the time after it begin one when that is over; what is enqueued for now does not wait.
func TestWhatHappensSoonAfterAPassIsGathered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var passes []time.Duration
		begun := time.Now()
		r := start(t, Config[string]{Gather: time.Second, Reconcile: func(context.Context, string) (Result, error) {
			passes = append(passes, time.Since(begun))
			return Result{}, nil
		}})
		for range 8 { // until 2.1 s
			r.EnqueueSoon("key")
			elapse(300 * time.Millisecond)
		}
		r.Enqueue("key")
		elapse(0)
		r.EnqueueSoon("key")
		elapse(5 * time.Second)
		r.EnqueueSoon("key")
		elapse(0)
		want := []time.Duration{0, time.Second, 2 * time.Second, 2400 * time.Millisecond, 3 * time.Second, 7400 * time.Millisecond}
		if diff := cmp.Diff(want, passes); diff != "" {
			t.Errorf("passes (-want +got):\n%s", diff)
		}
	})
}
