package runner

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.uber.org/goleak"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"

	"github.com/machine-controller-fleet/machine-controller-fleet/internal/telemetry"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// start creates a runner and runs it until the test is over.
func start(t *testing.T, cfg Config[string]) *Runner[string] {
	t.Helper()
	cfg.Name = "test"
	r, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		r.Run(ctx)
		close(ended)
	}()
	t.Cleanup(func() {
		stop()
		<-ended
	})
	return r
}

// elapse lets the bubble's time go by, until all is quiet again.
func elapse(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func TestAFailingKeyBacksOffAndIsAlwaysRetried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var attempts []time.Duration
		begun := time.Now()
		r := start(t, Config[string]{
			MinBackoff: time.Second, MaxBackoff: time.Minute,
			Reconcile: func(context.Context, string) (Result, error) {
				attempts = append(attempts, time.Since(begun))
				if len(attempts) <= 100 {
					return Result{}, errors.New("no")
				}
				return Result{}, nil
			},
		})
		r.Enqueue("key")
		elapse(2 * time.Second)
		if age, keys := r.oldestFailure(); age < time.Second || keys != 1 {
			t.Errorf("oldest failure %s, %d keys", age, keys)
		}
		elapse(3 * time.Hour)
		if len(attempts) != 101 {
			t.Fatalf("%d attempts, want 101", len(attempts))
		}
		for i, want := range []time.Duration{0, time.Second, 3 * time.Second, 7 * time.Second} {
			if attempts[i] != want {
				t.Errorf("attempt %d at %s, want %s", i, attempts[i], want)
			}
		}
		if step := attempts[100] - attempts[99]; step != time.Minute {
			t.Errorf("the last wait was %s, want %s", step, time.Minute)
		}
		if _, keys := r.oldestFailure(); keys != 0 {
			t.Errorf("%d keys fail after a success", keys)
		}
	})
}

func TestOneKeyIsNeverReconciledTwiceAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var inside, runs atomic.Int32
		r := start(t, Config[string]{Workers: 10, Reconcile: func(context.Context, string) (Result, error) {
			if inside.Add(1) > 1 {
				t.Error("two at a time")
			}
			runs.Add(1)
			time.Sleep(time.Second)
			inside.Add(-1)
			return Result{}, nil
		}})
		for range 5 {
			r.Enqueue("key")
		}
		elapse(500 * time.Millisecond)
		r.Enqueue("key") // while it is in work: once more afterwards
		elapse(time.Minute)
		if got := runs.Load(); got != 2 {
			t.Errorf("%d runs, want 2", got)
		}
	})
}

func TestAPanicIsAnErrorOfItsKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		metrics := NewMetrics(prometheus.NewRegistry())
		var others atomic.Int32
		panicked := false
		r := start(t, Config[string]{Metrics: metrics, Reconcile: func(_ context.Context, key string) (Result, error) {
			if key == "bad" && !panicked {
				panicked = true
				panic("oh")
			}
			others.Add(1)
			return Result{}, nil
		}})
		r.Enqueue("bad")
		r.Enqueue("good")
		elapse(time.Minute)
		if got := others.Load(); got != 2 {
			t.Errorf("%d reconciles after the panic, want 2", got)
		}
		if got := testutil.ToFloat64(metrics.panics.WithLabelValues("test")); got != 1 {
			t.Errorf("%v panics counted, want 1", got)
		}
	})
}

func TestRequeueAfter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var runs atomic.Int32
		r := start(t, Config[string]{Reconcile: func(context.Context, string) (Result, error) {
			runs.Add(1)
			return Result{RequeueAfter: 10 * time.Second}, nil
		}})
		r.Enqueue("key")
		elapse(25 * time.Second)
		if got := runs.Load(); got != 3 {
			t.Errorf("%d runs in 25 s, want 3", got)
		}
	})
}

// switchedGate is a gate that can be shut.
type switchedGate struct {
	mu           sync.Mutex
	open         bool
	admitted, in int
}

type owned struct{}

func (d *switchedGate) Admit(ctx context.Context, _ string) (context.Context, func(), bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.open {
		return nil, nil, false
	}
	d.admitted++
	d.in++
	return context.WithValue(ctx, owned{}, true), func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.in--
	}, true
}

func TestTheGateIsCheckedBeforeEachKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := &switchedGate{}
		var runs atomic.Int32
		r := start(t, Config[string]{Gate: gate, Reconcile: func(ctx context.Context, _ string) (Result, error) {
			if ctx.Value(owned{}) == nil {
				t.Error("the work does not have the gate's context")
			}
			if runs.Add(1) == 1 {
				return Result{}, errors.New("no")
			}
			return Result{}, nil
		}})
		r.Enqueue("key")
		elapse(time.Hour)
		if runs.Load() != 0 {
			t.Fatal("a key went through a shut gate")
		}
		gate.mu.Lock()
		gate.open = true
		gate.mu.Unlock()
		r.Enqueue("key") // as the code that opens the gate does
		elapse(time.Hour)
		if gate.admitted != 2 || gate.in != 0 || runs.Load() != 2 {
			t.Errorf("admitted %d, still in %d, runs %d", gate.admitted, gate.in, runs.Load())
		}
	})
}

// lateGate refuses until it opens, and then has refused keys enqueued again.
type lateGate struct {
	open    bool
	refused []string
	enqueue func(string)
}

func (g *lateGate) Notify(enqueue func(string)) { g.enqueue = enqueue }

func (g *lateGate) Admit(ctx context.Context, key string) (context.Context, func(), bool) {
	if !g.open {
		g.refused = append(g.refused, key)
	}
	return ctx, func() {}, g.open
}

func TestNotifierEnqueuesRefusedKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate, passes := &lateGate{}, 0
		r := start(t, Config[string]{Gate: gate, Reconcile: func(context.Context, string) (Result, error) {
			passes++
			return Result{}, nil
		}})
		r.Enqueue("key")
		elapse(time.Hour)
		if passes > 0 || len(gate.refused) != 1 {
			t.Fatalf("%d passes behind a closed gate, refused: %q", passes, gate.refused)
		}
		gate.open = true
		gate.enqueue(gate.refused[0])
		elapse(time.Second)
		if passes != 1 {
			t.Errorf("%d passes after the gate opened, want 1", passes)
		}
	})
}

// notOursError is the error of a fence.
type notOursError struct{}

func (notOursError) Error() string { return "not ours" }
func (notOursError) NotOurs() bool { return true }

// A create at a cloud is refused for the last seconds before the fence, which a renewal then moves:
// the key is still ours.
func TestLostOwnershipIsNoFailureAndTheKeyIsTriedAgain(t *testing.T) {
	for _, test := range []struct {
		name   string
		closes bool // the gate, after the first run
		want   int32
	}{
		{"another's by now", true, 1},
		{"ours still", false, 3},
	} {
		synctest.Test(t, func(t *testing.T) {
			metrics := NewMetrics(prometheus.NewRegistry())
			var runs atomic.Int32
			gate := &switchedGate{open: true}
			r := start(t, Config[string]{Metrics: metrics, Gate: gate, Reconcile: func(context.Context, string) (Result, error) {
				gate.mu.Lock()
				gate.open = !test.closes
				gate.mu.Unlock()
				if runs.Add(1) == 3 {
					return Result{}, nil
				}
				return Result{}, fmt.Errorf("create: %w", notOursError{})
			}})
			r.Enqueue("key")
			elapse(time.Hour)
			if got := runs.Load(); got != test.want {
				t.Errorf("%s: %d runs, want %d", test.name, got, test.want)
			}
			if _, keys := r.oldestFailure(); keys != 0 {
				t.Errorf("%s: it counts as failing", test.name)
			}
		})
	}
}

func TestRunFinishesWhatIsInWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		finished := false
		r, err := New(Config[string]{Name: "test", Reconcile: func(context.Context, string) (Result, error) {
			time.Sleep(time.Minute)
			finished = true
			return Result{}, nil
		}})
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, stop)
		r.Enqueue("key")
		r.Enqueue("never")
		r.Run(ctx)
		if !finished {
			t.Error("Run returned and a key was in work")
		}
	})
}

func TestEachReconcileHasASpan(t *testing.T) {
	recorder := tracetest.NewSpanRecorder()
	tracer := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(recorder)).Tracer("test")
	synctest.Test(t, func(t *testing.T) {
		r := start(t, Config[string]{
			Tracer: tracer, Root: func(key string) types.UID { return types.UID("root of " + key) },
			Reconcile: func(_ context.Context, key string) (Result, error) {
				if key == "slow" {
					time.Sleep(2 * time.Second) // the other key waits for the worker
					return Result{}, nil
				}
				return Result{}, errors.New("no")
			},
		})
		r.Enqueue("slow")
		r.Enqueue("key")
		elapse(2*time.Second + 10*time.Millisecond)
	})
	spans := recorder.Ended()
	if len(spans) != 4 || spans[2].Name() != telemetry.QueueSpan || spans[3].Name() != "reconcile test" ||
		spans[3].Status().Description != "no" {
		t.Fatalf("spans: %v", spans)
	}
	if waited := spans[2].EndTime().Sub(spans[2].StartTime()); waited != 2*time.Second || spans[3].StartTime() != spans[2].StartTime() {
		t.Errorf("in the queue for %s, want 2 s at the begin of the pass", waited)
	}
	if root := spans[3].Attributes()[0]; root.Value.AsString() != "root of key" {
		t.Errorf("sampled by %v", root)
	}
}

// A key that meets conflicts is tried again like one that fails, and shows as failing for as long;
// it is not reported as an error.
func TestConflictsAreCountedAndNotLoggedAsErrors(t *testing.T) {
	conflict := func() error {
		return fmt.Errorf("patch n/m: %w", apierrors.NewConflict(schema.GroupResource{Resource: "machines"}, "m", errors.New("it has changed")))
	}
	for _, test := range []struct {
		name                                  string
		err                                   error
		verbosity                             int
		conflicts, errors, lines, errorsInLog int
	}{
		{name: "a conflict at the default level", err: conflict(), verbosity: 2, conflicts: 1},
		{name: "a conflict at level 4", err: conflict(), verbosity: 4, conflicts: 1, lines: 1},
		{name: "two conflicts", err: errors.Join(conflict(), conflict()), verbosity: 4, conflicts: 1, lines: 1},
		{name: "an error", err: errors.New("no"), verbosity: 2, errors: 1, errorsInLog: 1},
		{name: "a conflict and an error", err: errors.Join(conflict(), errors.New("no")), verbosity: 2, errors: 1, errorsInLog: 1},
		{name: "an error and a conflict", err: fmt.Errorf("%w, %w", errors.New("no"), conflict()), verbosity: 2, errors: 1, errorsInLog: 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			logger := ktesting.NewLogger(t, ktesting.NewConfig(ktesting.Verbosity(test.verbosity), ktesting.BufferLogs(true)))
			metrics := NewMetrics(prometheus.NewRegistry())
			r, err := New(Config[string]{
				Name: "test", Metrics: metrics, MinBackoff: time.Hour, MaxBackoff: time.Hour,
				Reconcile: func(context.Context, string) (Result, error) { return Result{}, test.err },
			})
			if err != nil {
				t.Fatal(err)
			}
			defer r.queue.ShutDown()
			r.Enqueue("key")
			r.next(klog.NewContext(t.Context(), logger), func() {})
			if _, keys := r.oldestFailure(); keys != 1 {
				t.Errorf("%d keys fail, want 1", keys)
			}
			for _, counter := range []struct {
				of   *prometheus.CounterVec
				want int
			}{{metrics.conflicts, test.conflicts}, {metrics.errors, test.errors}} {
				if got := testutil.ToFloat64(counter.of.WithLabelValues("test")); got != float64(counter.want) {
					t.Errorf("counted %v, want %d", got, counter.want)
				}
			}
			underlier, ok := logger.GetSink().(ktesting.Underlier)
			if !ok {
				t.Fatal("the logger keeps no lines")
			}
			lines := map[ktesting.LogType]int{}
			for _, line := range underlier.GetBuffer().Data() {
				lines[line.Type]++
			}
			if lines[ktesting.LogInfo] != test.lines || lines[ktesting.LogError] != test.errorsInLog {
				t.Errorf("lines %v, want %d of INFO and %d of ERROR", lines, test.lines, test.errorsInLog)
			}
		})
	}
}

func TestMetricsHaveTheUsualNames(t *testing.T) {
	registry := prometheus.NewRegistry()
	metrics := NewMetrics(registry)
	start(t, Config[string]{Metrics: metrics, Reconcile: func(context.Context, string) (Result, error) { return Result{}, nil }})
	const ofMCM = "mcm_workqueue_depth"
	if n, err := testutil.GatherAndCount(registry, ofMCM); err != nil || n != 0 {
		t.Errorf("%d series of %s before they are requested, %v; want none", n, ofMCM, err)
	}
	metrics.RepeatForMCM()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, f := range families {
		names = append(names, f.GetName())
	}
	all := strings.Join(names, " ")
	for _, want := range []string{
		ofMCM, "workqueue_depth", "controller_runtime_max_concurrent_reconciles",
		"mcf_failing_keys", "mcf_oldest_failing_key_seconds", "mcf_oldest_waiting_key_seconds",
	} {
		if !strings.Contains(all, want) {
			t.Errorf("no metric %s in %s", want, all)
		}
	}
}

// The only worker is stuck: how long the key behind it has waited shows, and not that of one which
// came later, nor the age of what is in work.
func TestTheOldestKeyThatWaitsIsShown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		registry := prometheus.NewRegistry()
		r := start(t, Config[string]{Workers: 1, Metrics: NewMetrics(registry), Reconcile: func(context.Context, string) (Result, error) {
			time.Sleep(10 * time.Second)
			return Result{}, nil
		}})
		shows := func(seconds string) {
			t.Helper()
			want := `
# HELP mcf_oldest_waiting_key_seconds How long the key that has waited for a worker for longest has done so; 0 when none waits.
# TYPE mcf_oldest_waiting_key_seconds gauge
mcf_oldest_waiting_key_seconds{controller="test"} ` + seconds + "\n"
			if err := testutil.GatherAndCompare(registry, strings.NewReader(want), "mcf_oldest_waiting_key_seconds"); err != nil {
				t.Error(err)
			}
		}
		r.Enqueue("stuck")
		elapse(2 * time.Second)
		shows("0")
		r.Enqueue("behind it")
		elapse(3 * time.Second)
		r.Enqueue("later")
		elapse(4 * time.Second)
		shows("7")
		elapse(2 * time.Second) // the first is through, and the second in work
		shows("6")
		elapse(time.Minute)
		shows("0")
	})
}

func TestNewReportsEachInvalidSetting(t *testing.T) {
	reconcile := func(context.Context, string) (Result, error) { return Result{}, nil }
	for _, cfg := range []Config[string]{{}, {Name: "test"}, {Reconcile: reconcile}, {Name: "test", Reconcile: reconcile, Workers: -1}} {
		if _, err := New(cfg); err == nil {
			t.Errorf("no error for %+v", cfg)
		}
	}
}
