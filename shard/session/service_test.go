package session

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	member "github.com/machine-controller-fleet/machine-controller-fleet/membership"
	"github.com/machine-controller-fleet/machine-controller-fleet/shard/session/protocol"
)

// What the replicas count as time for which slots were not worked on is what a client observes, who
// asks all of them 20 times a second.
func TestUnservedTimeIsCountedAsObserved(t *testing.T) {
	for name, tc := range map[string]struct {
		disturb func(w *observed)
		least   float64 // slot-seconds that the fault costs
		deaths  float64 // of slots: each is counted from a renewal, which was at most 2 s before it
	}{
		"nothing": {func(w *observed) { w.pass(2 * time.Minute) }, 0, 0},
		"a replica is killed": {func(w *observed) {
			w.replicas["fleet-0"].kill()
			w.pass(2 * time.Minute)
		}, 5 * 13, 6},
		"a replica is killed and returns after 9 s": {func(w *observed) {
			w.replicas["fleet-0"].kill()
			w.pass(9 * time.Second)
			w.begin("fleet-0", "bbbbb")
			w.pass(2 * time.Minute)
		}, 5 * 8, 6},
		"a crash loop": {func(w *observed) {
			for _, session := range []string{"bbbbb", "ccccc", "ddddd"} {
				w.replicas["fleet-0"].kill()
				w.pass(6 * time.Second)
				w.begin("fleet-0", session)
				w.pass(20 * time.Second)
			}
			w.pass(2 * time.Minute)
		}, 5 * 15, 18},
		"all are killed": {func(w *observed) {
			for _, p := range w.replicas {
				p.kill()
			}
			w.pass(5 * time.Minute)
			w.begin("fleet-1", "bbbbb")
			w.pass(2 * time.Minute)
		}, 16 * 300, 16},
		"a replica leaves": {func(w *observed) {
			close(w.replicas["fleet-0"].leave)
			w.pass(2 * time.Minute)
		}, 0, 0},
		"the API server is away for 30 s": {func(w *observed) {
			w.server.Away(true)
			w.pass(30 * time.Second)
			w.server.Away(false)
			w.pass(2 * time.Minute)
		}, 16 * 20, 0},
		"a replica is cut off for 12 s": {func(w *observed) {
			cut(w.server, "fleet-0")
			w.pass(12 * time.Second)
			cut(w.server, "none")
			w.pass(2 * time.Minute)
		}, 5, 0},
		"a replica is cut off for 5 min": {func(w *observed) {
			cut(w.server, "fleet-0")
			w.pass(5 * time.Minute)
			cut(w.server, "none")
			w.pass(2 * time.Minute)
		}, 5 * 5, 6 * 5},
		"objects are not known for 20 s": {func(w *observed) {
			w.replicas["fleet-0"].kill()
			w.known = 20 * time.Second
			w.begin("fleet-0", "bbbbb")
			w.pass(2 * time.Minute)
		}, 5 * 20, 6},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := &observed{
					t: t, server: newServer(), replicas: map[string]*process{}, unowned: map[string]float64{}, last: map[prometheus.Counter]float64{},
				}
				for _, replica := range []string{"fleet-0", "fleet-1", "fleet-2"} {
					w.begin(replica, "aaaaa")
				}
				w.pass(2 * time.Minute)
				w.scrape()
				if first := slices.Max(slices.Collect(maps.Values(w.unowned))); first != 0 || w.roots > fleetSlots {
					t.Errorf("%.1f slot-seconds and %.1f root-seconds are counted before slots had a first holder", first, w.roots)
				}
				w.observed, w.unopened, w.roots = 0, 0, 0
				clear(w.unowned)
				tc.disturb(w)
				w.scrape()
				counted := w.unopened + slices.Max(slices.Collect(maps.Values(w.unowned)))
				t.Logf("counted %.1f slot-seconds, observed %.1f", counted, w.observed)
				if roots := 3 * tc.least; w.roots < roots || tc.least == 0 && w.roots > 3*fleetSlots {
					t.Errorf("%.1f root-seconds are counted, want %.1f or more", w.roots, roots)
				}
				if w.observed < tc.least || counted < w.observed-1 || counted > w.observed+1+2*tc.deaths {
					t.Errorf("%.1f slot-seconds are counted, and %.1f were observed; want at least %.1f, and at most %.0f more than observed",
						counted, w.observed, tc.least, 2*tc.deaths)
				}
			})
		})
	}
}

// What other clients have written into Leases neither stops a replica nor counts for longer than it
// can be true.
func TestUnservedTimeOfLeasesThatOthersWrote(t *testing.T) {
	const slot, session = "fleet-slot-003", "fleet-session-fleet-0"
	now := func(seconds int) member.Moment {
		return member.Moment{Wall: time.Date(2026, 1, 2, 3, 4, seconds, 0, time.UTC), Monotonic: time.Duration(seconds) * time.Second}
	}
	type seen struct {
		name, holder string
		renewed      time.Time
	}
	ancient := time.Date(1700, 1, 1, 0, 0, 0, 0, time.UTC)
	for name, tc := range map[string]struct {
		leases []seen
		most   time.Duration
	}{
		"a slot that was released in 1700": {[]seen{{slot, "", ancient}, {slot, "fleet-1_abcde", now(1).Wall}}, oldest + time.Minute},
		"its holder lived in 1700": {
			[]seen{{session, "fleet-0_aaaaa", ancient}, {slot, "fleet-0_aaaaa", ancient}, {slot, "fleet-1_abcde", now(1).Wall}},
			oldest + time.Minute,
		},
		"cleared by hand while the fleet was down": {
			[]seen{{session, "fleet-0_aaaaa", now(-60).Wall}, {slot, "", now(0).Wall.AddDate(0, 0, -30)}}, 2 * time.Minute,
		},
		"a holder that lives, and wrote a time in the future": {[]seen{
			{session, "fleet-0_aaaaa", now(1 << 20).Wall}, {slot, "fleet-0_aaaaa", now(0).Wall}, {session, "fleet-0_aaaaa", now(55).Wall},
		}, 0},
	} {
		s := protocol.Settings{Config: member.DefaultConfig(), Fleet: "fleet", Slots: 8, Replica: "fleet-1", Session: "fleet-1_abcde"}
		h, m := newHolders(s, now(0)), NewMetrics(prometheus.NewRegistry())
		service := &service{metrics: m, holders: h, roots: func(int) int { return 1 }}
		for i, is := range tc.leases {
			renewed, transitions := metav1.NewMicroTime(is.renewed), int32(1)
			lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: is.name}}
			lease.Spec = coordinationv1.LeaseSpec{HolderIdentity: &is.holder, RenewTime: &renewed, LeaseTransitions: &transitions}
			h.seen(lease, now(min(55, i*40)))
		}
		service.opened(3, now(60))
		service.observe(now(60), true)
		if got := time.Duration(testutil.ToFloat64(m.unownedSeconds) * float64(time.Second)); got > tc.most {
			t.Errorf("%s: %s are counted, want at most %s", name, got, tc.most)
		}
	}
}

func TestHoldersForgetReplicas(t *testing.T) {
	s := protocol.Settings{Config: member.DefaultConfig(), Fleet: "fleet", Slots: 8, Replica: "fleet-1", Session: "fleet-1_abcde"}
	h := newHolders(s, member.Moment{})
	for i := range 100 {
		at := member.Moment{Wall: time.Date(2026, 1, 2, 3, 4, i, 0, time.UTC), Monotonic: time.Duration(i) * time.Second}
		replica := fmt.Sprintf("fleet-%d", i)
		session, renewed := replica+"_abcde", metav1.NewMicroTime(at.Wall)
		h.seen(&coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Name: member.SessionLeaseName("fleet", replica)},
			Spec:       coordinationv1.LeaseSpec{HolderIdentity: &session, RenewTime: &renewed},
		}, at)
		h.prune(at)
	}
	if len(h.signs) > 20 || len(h.sessions) > 20 {
		t.Errorf("%d sessions and %d replicas are remembered", len(h.signs), len(h.sessions))
	}
}

// ask is after what time the observer asks again.
const ask = 50 * time.Millisecond

// observed is a fleet, what an observer has seen of it, and what its metrics have counted.
type observed struct {
	t        *testing.T
	server   *server
	replicas map[string]*process
	observed float64            // slot-seconds in which a slot was open at no replica
	unowned  map[string]float64 // as each replica sees it
	unopened float64
	roots    float64
	last     map[prometheus.Counter]float64 // when they were last scraped
	known    time.Duration                  // how long it takes a process that begins to know the objects of its slots
}

// begin starts a process of a replica, the last of which has ended.
func (w *observed) begin(replica, session string) {
	w.scrape()
	w.replicas[replica] = beginWith(w.t.Context(), w.t, w.server.Config(), replica, delayedGrants{after: w.known}, func(s *protocol.Settings) {
		s.Session = replica + "_" + session
	})
}

// delayedGrants knows the objects of slots after some time.
type delayedGrants struct {
	instantGrants

	after time.Duration
}

func (d delayedGrants) Add(slots []int, ready func([]int)) {
	time.AfterFunc(d.after, func() { ready(slots) })
}

// pass observes the fleet for some time.
func (w *observed) pass(d time.Duration) {
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(ask) {
		open := map[int]bool{}
		synctest.Wait()
		for _, p := range w.replicas {
			for _, slot := range p.open() {
				open[slot] = true
			}
		}
		w.observed += float64(fleetSlots-len(open)) * ask.Seconds()
	}
}

// scrape adds by how much the counters have increased.
func (w *observed) scrape() {
	increase := func(c prometheus.Counter) float64 {
		now, last := testutil.ToFloat64(c), w.last[c]
		w.last[c] = now
		return now - last
	}
	for replica, p := range w.replicas {
		w.unowned[replica] += increase(p.metrics.unownedSeconds)
		w.unopened += increase(p.metrics.unopenedSeconds)
		w.roots += increase(p.metrics.rootSeconds)
	}
}
