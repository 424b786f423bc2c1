package replica

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/machine-controller-fleet/machine-controller-fleet/internal/serving"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/zpages"
	member "github.com/machine-controller-fleet/machine-controller-fleet/membership"
	shardsession "github.com/machine-controller-fleet/machine-controller-fleet/shard/session"
)

func textsOf(r zpages.Report) (failed map[string]string, notes []string) {
	failed = map[string]string{}
	for _, check := range r.Checks {
		if check.Err != nil {
			failed[check.Name] = check.Err.Error()
		}
	}
	return failed, r.Notes
}

func TestReadiness(t *testing.T) {
	fit := member.Fitness{Acts: true, Observes: true, Serves: map[string]member.Service{"default": member.Serving}}
	failing := map[string]member.Service{"default": member.Failing}
	for name, c := range map[string]struct {
		health  shardsession.Health
		loop    error
		control string
		failed  map[string]string
		notes   []string
	}{
		"fit":            {health: shardsession.Health{Fitness: fit}},
		"the loop hangs": {loop: errors.New("no answer"), failed: map[string]string{checkLoop: "no answer"}},
		"suspended": {health: shardsession.Health{Fitness: fit, Suspended: true}, failed: map[string]string{
			checkLease: "the session does not hold its Lease, or its fence has passed",
		}},
		"Leases are not listed": {
			health: shardsession.Health{Fitness: member.Fitness{Reason: "not listed"}}, failed: map[string]string{checkLeases: "not listed"},
		},
		"blind": {
			health: shardsession.Health{Fitness: member.Fitness{Acts: true, Reason: "blind"}}, failed: map[string]string{checkLeases: "blind"},
		},
		"a slot waits": {
			health: shardsession.Health{Fitness: fit, Waiting: map[int]string{1: "Machines", 2: "Machines", 3: nodesKind}},
			failed: map[string]string{checkSlots: "2 slots wait for their objects: Machines"},
		},
		"a slot waits for Nodes": {health: shardsession.Health{Fitness: fit, Waiting: map[int]string{3: nodesKind}}},
		"the target cluster away": {
			health: shardsession.Health{Fitness: member.Fitness{Acts: true, Observes: true, Serves: failing, Reason: "no Nodes"}},
			notes:  []string{"target cluster default: no Nodes; readiness does not depend on it"},
		},
		"the control cluster away": {
			health:  shardsession.Health{Fitness: member.Fitness{Acts: true, Observes: true, Serves: failing, Reason: "no Machines"}},
			control: "no Machines", failed: map[string]string{checkControl: "no Machines"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			failed, notes := textsOf(readiness(c.health, c.loop, c.control))
			if c.failed == nil {
				c.failed = map[string]string{}
			}
			if diff := cmp.Diff(c.failed, failed); diff != "" {
				t.Errorf("failed checks (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(c.notes, notes); diff != "" {
				t.Errorf("notes (-want +got):\n%s", diff)
			}
		})
	}
}

func TestLiveness(t *testing.T) {
	for silence, want := range map[time.Duration]int{0: 0, loopSilence / 3: 0, loopSilence/3 + 1: 1} {
		if failed, _ := textsOf(liveness(silence)); len(failed) != want {
			t.Errorf("after %v of silence %v have failed, want %d", silence, failed, want)
		}
	}
}

// TestAReplicaIsReadyWhileTheTargetClusterIsAway: its other work continues. A replica that starts
// meanwhile becomes ready, too, so that a rolling update of the fleet does not wait for the target
// cluster; and without the control cluster none is ready.
func TestAReplicaIsReadyWhileTheTargetClusterIsAway(t *testing.T) {
	o := replicaOptions()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newTrial(t, o, 1, nil)
		defer r.end()
		if r.target == r.control {
			t.Fatal("the seed has one cluster only; choose another one")
		}
		r.createUnmanaged()
		r.createClass("a")
		r.putRoot("a", "d", 1)
		first := r.start("fleet-0")
		until := func(what string, cond func() bool) {
			t.Helper()
			if !r.run(5*time.Minute, cond) {
				t.Fatalf("%s does not come true: %s %s", what, first.answers(t, "/readyz?verbose"), r.wrong)
			}
		}
		until("the fleet serves", func() bool { return r.missing() == "" && first.ready() == nil })
		away := r.network.disturb(awayFromAll(atTarget))
		until("the replica is unfit", func() bool { return len(first.unfit()) == 1 })
		second := r.start("fleet-1")
		until("the second replica is ready", func() bool { return second.ready() == nil })
		const arrival = 5 * time.Second // of the objects of a slot that is tried again
		readyAt := map[*process]time.Time{first: time.Now(), second: time.Now()}
		r.run(atRest(2*time.Minute, 5*time.Minute), func() bool {
			for p, at := range readyAt {
				err := p.ready()
				if err == nil {
					readyAt[p] = time.Now()
				} else if time.Since(at) > arrival {
					t.Fatalf("%s is not ready: %v", p.replica, err)
				}
			}
			return false
		})
		t.Log(first.answers(t, "/readyz?verbose"))
		r.network.heal(away)
		until("the replica is fit", func() bool { return len(first.unfit()) == 0 })
		r.network.disturb(awayFromAll(atControl))
		until("the replica is not ready", func() bool { return first.ready() != nil })
		if t.Log(first.answers(t, "/readyz")); first.answers(t, "/livez") != "ok" {
			t.Error("the replica does not live")
		}
	})
}

// awayFromAll is an API server that no replica reaches.
func awayFromAll(place string) *disturbance {
	return &disturbance{name: place + " is away", there: true, back: true, of: func(q request) bool { return q.place == place }}
}

func ok(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) }

// answers returns what a replica answers to a request for health.
func (p *process) answers(t *testing.T, path string) string {
	t.Helper()
	answer := httptest.NewRecorder()
	ok := http.HandlerFunc(ok)
	serving.NewMux(serving.Pages{Metrics: ok, Debug: ok, Statusz: ok, Flagz: ok}, serving.Health{Live: p.fleet.Live, Ready: p.fleet.Ready}).
		ServeHTTP(answer, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil))
	return answer.Body.String()
}

func TestStatuszShowsTheSession(t *testing.T) {
	o := replicaOptions()
	synctest.Test(t, func(t *testing.T) {
		r := newTrial(t, o, 1, nil)
		defer r.end()
		p := r.start("fleet-0")
		if !r.run(5*time.Minute, func() bool { return p.ready() == nil && r.unowned() == 0 }) {
			t.Fatal(p.ready(), r.wrong)
		}
		want := []zpages.Row{
			{Name: "Replica", Value: "fleet-0"},
			{Name: "Session", Value: p.session},
			{Name: "Leads", Value: "true"},
			{Name: "Slots held", Value: strconv.Itoa(slotsOfTrial)},
			{Name: "Slots not open", Value: "0"},
			{Name: "Fit", Value: "true"},
		}
		got := p.fleet.StatusRows(httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/statusz", nil))
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	})
}
