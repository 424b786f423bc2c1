package session

import (
	"context"
	"io"
	"net/http"
	"path"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/client-go/rest"

	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/apiserver"
	member "github.com/machine-controller-fleet/machine-controller-fleet/membership"
	"github.com/machine-controller-fleet/machine-controller-fleet/shard/session/protocol"
)

// blindfold is a way to the API server on which, while it is on, reads and writes of single Leases
// pass, and lists and watches are not answered.
type blindfold struct {
	mu  sync.Mutex
	off chan struct{} // closed while it is off
}

// blindfolded is a way to a server with a blindfold that is off.
func blindfolded(server *server) (*blindfold, *rest.Config) {
	b := &blindfold{off: make(chan struct{})}
	close(b.off)
	config := server.Config()
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTrip(func(r *http.Request) (*http.Response, error) { return b.send(next, r) })
	})
	return b, config
}

type roundTrip func(r *http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func (b *blindfold) set(on bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if on {
		b.off = make(chan struct{})
	} else {
		close(b.off)
	}
}

// wait returns when the blindfold is off. Errors: that of ctx.
func (b *blindfold) wait(ctx context.Context) error {
	b.mu.Lock()
	off := b.off
	b.mu.Unlock()
	select {
	case <-off:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (b *blindfold) send(next http.RoundTripper, r *http.Request) (*http.Response, error) {
	isMany := r.Method == http.MethodGet && path.Base(r.URL.Path) == "leases"
	if isMany {
		if err := b.wait(r.Context()); err != nil {
			return nil, err
		}
	}
	answer, err := next.RoundTrip(r)
	if err == nil && isMany {
		answer.Body = &stoppedBody{ReadCloser: answer.Body, wait: func() error { return b.wait(r.Context()) }}
	}
	return answer, err
}

// stoppedBody holds back what comes while the blindfold is on.
type stoppedBody struct {
	io.ReadCloser

	wait func() error
}

func (h *stoppedBody) Read(into []byte) (int, error) {
	n, err := h.ReadCloser.Read(into)
	if waited := h.wait(); waited != nil {
		return 0, waited
	}
	return n, err
}

// shutGrants never know the objects of a slot while they are shut.
type shutGrants struct {
	instantGrants

	mu   sync.Mutex
	shut bool
}

func (g *shutGrants) Add(slots []int, ready func([]int)) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.shut {
		ready(slots)
	}
}

func (g *shutGrants) Unlisted() map[int]string {
	unlisted := map[int]string{}
	for slot := range fleetSlots {
		unlisted[slot] = "Nodes"
	}
	return unlisted
}

func (g *shutGrants) set(shut bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.shut = shut
}

// gauge is the value of a gauge with a label's value, -1 if there is none.
func (p *process) gauge(t *testing.T, name, value string) float64 {
	t.Helper()
	families, err := p.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		for _, m := range family.GetMetric() {
			if family.GetName() == name && m.GetLabel()[0].GetValue() == value {
				return m.GetGauge().GetValue()
			}
		}
	}
	return -1
}

// wantFit expects what a replica says of an aspect, in its metrics and to probes.
func (p *process) wantFit(t *testing.T, aspect string, fit bool) {
	t.Helper()
	if got := p.gauge(t, "mcf_fit", aspect); got != number(fit) {
		t.Errorf("mcf_fit{aspect=%q} is %v, want %v", aspect, got, number(fit))
	}
	if h, err := p.Health(t.Context()); err != nil || h.Fitness.IsFit() != fit {
		t.Errorf("health is %+v, %v; want fit: %v", h, err, fit)
	}
}

// trio is a fleet of three that holds all slots, of which one, maybe the leader, is blindfolded as
// soon as the test likes.
func trio(t *testing.T, leads bool) (fold *blindfold, blind *process, others []*process) {
	t.Helper()
	server := newServer()
	fold, way := blindfolded(server)
	if leads {
		blind = beginOn(t.Context(), t, way, "fleet-1")
		time.Sleep(5 * time.Second)
	}
	others = append(others, begin(t, server, "fleet-0"))
	time.Sleep(5 * time.Second)
	others = append(others, begin(t, server, "fleet-2"))
	if !leads {
		blind = beginOn(t.Context(), t, way, "fleet-1")
	}
	wantAll(t, time.Minute, append(slices.Clone(others), blind)...)
	wantAll(t, 3*time.Minute, append(slices.Clone(others), blind)...)
	if len(blind.open()) == 0 {
		t.Fatal("it holds nothing")
	}
	if is := blind.maySend(t, member.NeedLeadership) == ""; is != leads {
		t.Fatalf("it leads: %v, want %v", is, leads)
	}
	return fold, blind, others
}

func TestTheSlotsOfAReplicaThatSeesNothingGoToOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fold, blind, others := trio(t, false)
		fold.set(true)
		wantAll(t, 25*time.Second, append(slices.Clone(others), blind)...)
		if open := blind.open(); len(open) > 0 {
			t.Errorf("it keeps slots %v open", open)
		}
		time.Sleep(longUnfit)
		blind.wantFit(t, "observes", false)
		others[0].wantFit(t, "observes", true)
		unfit := 0
		for _, p := range others {
			unfit += len(p.unfit)
		}
		if unfit != 2 { // the first time without success
			t.Errorf("%d reports of unfit replicas, want 2", unfit)
		}
		fold.set(false)
		wantAll(t, 5*time.Minute, append(slices.Clone(others), blind)...)
		if len(blind.open()) < 2 {
			t.Errorf("it has slots %v, want its share", blind.open())
		}
		blind.wantFit(t, "observes", true)
	})
}

func TestALeaderThatSeesNothingResigns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fold, blind, others := trio(t, true)
		fold.set(true)
		time.Sleep(20 * time.Second)
		synctest.Wait()
		leaders := 0
		for _, p := range others {
			leaders += int(number(p.maySend(t, member.NeedLeadership) == ""))
		}
		if leaders != 1 || blind.maySend(t, member.NeedLeadership) == "" {
			t.Errorf("%d others lead, want one", leaders)
		}
		wantAll(t, 10*time.Second, others...)
		others[0].kill() // and what the leader is for works
		wantAll(t, 45*time.Second, others[1])
	})
}

// Its fence passes, and when it is back the Leases cannot be listed.
func TestAReplicaThatCannotListAfterASuspensionEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fold, blind, others := trio(t, false)
		fold.set(true)
		until := time.Now().Add(11 * time.Second)
		others[0].server.Fault(func(r apiserver.Request) error {
			if time.Now().Before(until) {
				return unreachableFor("fleet-1")(r)
			}
			return nil
		})
		wantAll(t, 35*time.Second, others...)
		//nolint:errorlint // it is not wrapped
		if exit, ok := (<-blind.ended).(*ExitError); !ok || exit.Reason != protocol.ReasonUnfit || !exit.Empty {
			t.Errorf("ended with %v", exit)
		}
	})
}

func TestSlotsThatDoNotOpenGoToOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server, grants := newServer(), &shutGrants{shut: true}
		way := server.Config()
		var fleet []*process
		for _, name := range []string{"fleet-0", "fleet-1", "fleet-2"} {
			p := beginWith(t.Context(), t, way, name, map[bool]Grants{true: grants, false: instantGrants{}}[name == "fleet-1"])
			fleet = append(fleet, p)
		}
		shut, others := fleet[1], []*process{fleet[0], fleet[2]}
		time.Sleep(20 * time.Second) // all slots have holders
		synctest.Wait()
		if waiting := shut.gauge(t, "mcf_unopened_slots", "Nodes"); waiting < 3 {
			t.Errorf("%v slots are unopened for Nodes, want its share", waiting)
		}
		wantAll(t, 35*time.Second, others...)
		time.Sleep(time.Second)
		shut.wantFit(t, "serves", false)

		// It is tried with one slot at a time, and less and less often.
		unserved := time.Duration(0)
		const tick = time.Second
		for range 20 * time.Minute / tick {
			time.Sleep(tick)
			missing := fleetSlots - wantOnce(t, others...)
			if missing > 1 {
				t.Fatalf("%d slots are not served at once", missing)
			}
			unserved += time.Duration(missing) * tick
		}
		if most := 5 * 40 * time.Second; unserved > most || unserved == 0 {
			t.Errorf("one slot was not served for %v in 20 min, want at most %v, and some", unserved, most)
		}
		grants.set(false)
		time.Sleep(20 * time.Minute)
		wantAll(t, time.Minute, fleet...)
		shut.wantFit(t, "serves", true)
		if len(shut.open()) < 4 {
			t.Errorf("it has slots %v, want its share", shut.open())
		}
	})
}

// A replica renews its Lease, and the API server refuses each of its writes of slot Leases.
func TestAReplicaThatCannotAcquireIsTriedLessAndLessOften(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newServer()
		server.Fault(func(r apiserver.Request) error {
			if r.Method == http.MethodPut && strings.Contains(r.URL.Path, "/fleet-slot-") &&
				strings.Contains(r.Header.Get("User-Agent"), "/fleet-1 ") {
				return context.DeadlineExceeded
			}
			return nil
		})
		b := begin(t, server, "fleet-1") // the leader at first, and cannot even create slots
		time.Sleep(5 * time.Second)
		a := begin(t, server, "fleet-0")
		wantAll(t, 90*time.Second, a)
		unowned := time.Duration(0)
		const tick = time.Second
		for range 20 * time.Minute / tick {
			time.Sleep(tick)
			unowned += time.Duration(fleetSlots-wantOnce(t, a, b)) * tick
		}
		if most := 5 * 10 * time.Second; unowned > most || unowned == 0 {
			t.Errorf("slots were not owned for %v in 20 min, want at most %v, and some", unowned, most)
		}
		server.Fault(nil)
		time.Sleep(30 * time.Minute)
		wantAll(t, time.Minute, a, b)
		if diff := cmp.Diff(fleetSlots/2, len(b.open())); diff != "" {
			t.Errorf("slots of the replica that can acquire again (-want +got):\n%s", diff)
		}
	})
}
