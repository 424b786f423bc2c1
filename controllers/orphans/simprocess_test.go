package orphans

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/orphans/decide"
	"github.com/machine-controller-fleet/machine-controller-fleet/driver"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/deletion"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/target"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/apiserver"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/apitest"
)

// process is a replica that sweeps while it leads.
type process struct {
	w       *world
	orphans *Controller
	stop    context.CancelFunc
	done    chan struct{}
	leading atomic.Pointer[context.CancelFunc] // nil while it does not lead
	dead    atomic.Bool
	tokens  atomic.Int64
	serial  int
	inWork  atomic.Int64
	killAt  atomic.Int64 // requests until it is killed; negative for never
}

var _ http.RoundTripper = (*way)(nil)

// way is the way of a process to an API server.
type way struct {
	p      *process
	server http.RoundTripper
}

// RoundTrip sends a request, after some time, under the faults of the world.
func (v *way) RoundTrip(r *http.Request) (*http.Response, error) {
	w, p := v.p.w, v.p
	later := r.URL.Query().Get("continue") != ""
	if err := p.send(r.Context(), r.Method+" "+r.URL.String(), later); err != nil {
		if w.broken.partialLists && later {
			return &http.Response{
				StatusCode: http.StatusOK, Request: r, Header: http.Header{"Content-Type": {"application/json"}},
				Body: io.NopCloser(strings.NewReader(emptyList(r))),
			}, nil
		}
		if r.Body != nil {
			_ = r.Body.Close()
		}
		return nil, err
	}
	server := v.server
	if w.broken.cachedReads && r.Method == http.MethodGet && strings.Contains(r.URL.Path, "/machines") && w.stale != nil {
		server = w.stale
	}
	answer, err := server.RoundTrip(r)
	if err == nil && p.loses() {
		return nil, errors.New("the answer was lost")
	}
	return answer, err
}

func emptyList(r *http.Request) string {
	if strings.Contains(r.Header.Get("Accept"), "as=PartialObjectMetadata") {
		return `{"kind":"PartialObjectMetadataList","apiVersion":"meta.k8s.io/v1","metadata":{},"items":[]}`
	}
	return `{"kind":"List","apiVersion":"v1","metadata":{},"items":[]}`
}

// send lets time pass, and fails when the request does not arrive. It is where a process is killed.
// later reports whether the request is for another page than the first. What happens follows from
// the request and its time, so that requests at the same time may come in any order.
func (p *process) send(ctx context.Context, request string, later bool) error {
	w := p.w
	if p.dead.Load() {
		return errDead
	}
	if left := p.killAt.Add(-1); left == 0 {
		p.kill()
		return errDead
	}
	random := w.randomOf(request)
	w.mu.Lock()
	faults := w.faults
	w.mu.Unlock()
	delay := time.Duration(0)
	if random.IntN(8) == 0 {
		delay = time.Duration(random.IntN(2000)) * time.Millisecond
	}
	fails := random.IntN(100) < faults
	if later && w.broken.partialLists {
		fails = random.IntN(3) == 0
	} else if later {
		fails = fails || random.IntN(100) < 4*faults
	}
	if p.leading.Load() == nil { // the fence
		return errors.New("the session does not lead")
	}
	if delay > 0 {
		select {
		case <-time.After(delay):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if fails {
		return fmt.Errorf("the request failed")
	}
	return nil
}

// randomOf returns the source of what happens to a request at this time.
func (w *world) randomOf(request string) *rand.Rand {
	sum := fnv.New64a()
	fmt.Fprint(sum, request, time.Now().UnixNano())
	return rand.New(rand.NewPCG(w.seed, sum.Sum64()))
}

// loses reports whether an answer is lost: the process is killed between effect and answer.
func (p *process) loses() bool {
	if p.dead.Load() {
		return true
	}
	if p.killAt.Add(-1) == 0 {
		p.kill()
		return true
	}
	return false
}

func (p *process) kill() {
	p.dead.Store(true)
	p.resign()
	p.stop()
}

// Admit is runner.Gate's.
func (p *process) Admit(ctx context.Context, _ string) (context.Context, func(), bool) {
	if p.leading.Load() == nil {
		return nil, nil, false
	}
	owned, cancel := context.WithCancel(ctx)
	p.w.mu.Lock()
	p.w.passes[p] = append(p.w.passes[p], cancel)
	p.w.mu.Unlock()
	p.inWork.Add(1)
	return owned, func() {
		cancel()
		p.inWork.Add(-1)
	}, true
}

func (p *process) lead() {
	none := context.CancelFunc(func() {})
	p.leading.Store(&none)
	p.orphans.Led()
}

func (p *process) resign() {
	p.leading.Store(nil)
	p.w.mu.Lock()
	defer p.w.mu.Unlock()
	for _, cancel := range p.w.passes[p] {
		cancel()
	}
	delete(p.w.passes, p)
}

// newProcess starts a process.
func (w *world) newProcess(t *testing.T) *process {
	t.Helper()
	w.starts++
	p := &process{w: w, done: make(chan struct{}), serial: w.starts}
	p.killAt.Store(-1)
	control, nodes := apiserver.ClientsThrough(&way{p, w.control}), apiserver.ClientsThrough(&way{p, w.target})
	limit, budget := w.limit, (*deletion.Budget)(nil)
	if w.seed%3 == 1 { // the deletion budget is the limit
		limit = decide.MaxLimit
		if !w.broken.noBudget {
			budget = &deletion.Budget{Namespaces: noAnnotations{}, Leases: control.Core.CoordinationV1(), Default: w.limit, Clock: clock.RealClock{}}
		}
	}
	var err error
	p.orphans, err = New(Config{
		Machines: control.Machines, Metadata: control.Metadata, Secrets: control.Core.CoreV1(), Leases: control.Core.CoordinationV1(),
		Sweeper: func(provider string) (driver.Sweeper, bool) { return w.cloud.Via(p.toCloud), provider == "simulated" },
		Targets: target.Single{Cluster: target.New(nodes.Core)}, Events: eventLog{w},
		Ledger:         types.NamespacedName{Namespace: "fleet", Name: "fleet-safety"},
		ControlCluster: func() string { return "ours" },
		Served: func(ctx context.Context, namespace string) (bool, error) {
			err := p.send(ctx, "served "+namespace, false)
			w.mu.Lock()
			defer w.mu.Unlock()
			return !w.off[namespace], err
		},
		Held: apitest.NotHeld, Deletions: deletion.NewRecorder(clock.RealClock{}, nil, nil),
		Gate: p, Token: func() string { return fmt.Sprintf("%d-%d", p.serial, p.tokens.Add(1)) },
		Period: w.period, Quarantine: w.quarantine, Limit: limit, Budget: budget, DryRun: w.dryRun, Clock: clock.RealClock{},
	})
	if err != nil {
		t.Fatal(err)
	}
	w.broken.breakRules(p.orphans)
	ctx, stop := context.WithCancel(t.Context())
	p.stop = stop
	go func() {
		p.orphans.Run(ctx)
		close(p.done)
	}()
	return p
}

// eventLog receives the Events of all processes.
type eventLog struct{ w *world }

// Eventf is events.EventRecorder's.
func (l eventLog) Eventf(about, _ runtime.Object, _, reason, _, note string, args ...any) {
	l.w.mu.Lock()
	defer l.w.mu.Unlock()
	l.w.events = append(l.w.events, event{about: keyOf(about), reason: reason, text: fmt.Sprintf(note, args...)})
}

// copyOf returns a server with the content that another one has now.
func copyOf(s *apiserver.Server) *apiserver.Server {
	c := apiserver.New("stale", time.Now)
	c.List("machines")
	c.Restore(s.Save())
	return c
}

// lockedBuffer is a story that several goroutines write.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) printf(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	fmt.Fprintf(&l.b, format+"\n", args...)
}
