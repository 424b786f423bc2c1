package session

import (
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	member "github.com/machine-controller-fleet/machine-controller-fleet/membership"
	"github.com/machine-controller-fleet/machine-controller-fleet/shard/session/protocol"
)

// A slot is unserved from the last sign of life of its holder, or from its release, until another
// session acquires it, if that takes long.
func TestLongTimeWithoutALiveHolderIsAGap(t *testing.T) {
	const a, b = "fleet-0_aaaaa", "fleet-1_bbbbb"
	start := time.Date(2026, 1, 2, 3, 0, 0, 0, time.UTC)
	type seen struct {
		lease, holder string
		at            time.Duration
	}
	slot := func(holder string, at time.Duration) seen { return seen{"fleet-slot-003", holder, at} }
	lives := func(session string, at time.Duration) seen { return seen{"fleet-session-" + session[:7], session, at} }
	for name, tc := range map[string]struct {
		leases   []seen
		from, to time.Duration // 0 for none
	}{
		"first sight": {leases: []seen{slot(a, 0)}},
		"a hand-over": {leases: []seen{lives(a, 0), slot(a, 0), slot("", time.Hour), slot(b, time.Hour+time.Second)}},
		"a take-over": {leases: []seen{slot(a, 0), lives(a, time.Hour), slot(b, time.Hour+17*time.Second)}},
		"a dead holder, and no leader": {
			leases: []seen{slot(a, 0), lives(a, time.Minute), lives(b, time.Hour), slot(b, time.Hour)}, from: time.Minute, to: time.Hour,
		},
		"a release, and no leader": {
			leases: []seen{slot(a, 0), lives(a, 2*time.Minute), slot("", 2*time.Minute), slot(b, time.Hour)}, from: 2 * time.Minute, to: time.Hour,
		},
		"released before this session began": {
			leases: []seen{slot("", 2*time.Minute), slot(b, time.Hour)}, from: 2 * time.Minute, to: time.Hour,
		},
		"cleared by hand, and a dead holder": {
			leases: []seen{slot(a, time.Second), lives(a, 2*time.Minute), slot("", time.Second), slot(b, time.Hour)}, from: 2 * time.Minute,
			to: time.Hour,
		},
		"cleared by hand, and a live holder": {
			leases: []seen{slot(a, time.Second), lives(a, time.Hour), slot("", time.Second), slot(b, time.Hour+2*time.Second)},
		},
		"the same holder again":              {leases: []seen{slot(a, time.Second), lives(a, 2*time.Minute), slot(a, time.Hour)}},
		"a holder that was never seen alive": {leases: []seen{slot(a, time.Second), slot(b, time.Hour)}},
		"its replica restarts and waits": {
			leases: []seen{slot(a, 0), lives(a, time.Minute), lives("fleet-0_ccccc", 2*time.Minute), slot("fleet-0_ccccc", time.Hour)},
			from:   time.Minute, to: time.Hour,
		},
		"a dead holder, and a release": {leases: []seen{slot(a, 0), lives(a, time.Minute), slot("", time.Hour)}},
		"an older version of a session Lease": {
			leases: []seen{slot(a, 0), lives(a, time.Minute), lives(a, 3*time.Minute), lives(a, 2*time.Minute), slot(b, time.Hour)},
			from:   3 * time.Minute, to: time.Hour,
		},
		"a session of another replica begins": {
			leases: []seen{lives(a, time.Minute), lives(b, time.Minute), slot(a, time.Minute), slot(b, time.Hour)}, from: time.Minute, to: time.Hour,
		},
		"the shortest": {
			leases: []seen{slot(a, 0), lives(a, time.Minute), slot(b, time.Minute+member.ShortestGap)}, from: time.Minute,
			to: time.Minute + member.ShortestGap,
		},
		"one that ends when a clock is ahead": {
			leases: []seen{slot(a, 0), lives(a, time.Minute), slot(b, 2*time.Hour+time.Second)}, from: time.Minute, to: 2*time.Hour + time.Second,
		},
		"one that ends in the future": {leases: []seen{slot(a, 0), lives(a, time.Minute), slot(b, 365*24*time.Hour)}},
		"a Lease of another kind, or of another": {leases: []seen{
			lives(a, time.Minute),
			{"fleet-leader", a, 0},
			{"other-slot-003", a, 0},
			{"fleet-leader", b, time.Hour},
			{"other-slot-003", b, time.Hour},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			at := member.Moment{Wall: start.Add(2 * time.Hour)}
			h := newHolders(protocol.Settings{Config: member.DefaultConfig(), Fleet: "fleet", Slots: 16}, at)
			var got member.Gap
			for _, s := range tc.leases {
				renewed := metav1.NewMicroTime(start.Add(s.at))
				lease := &coordinationv1.Lease{
					ObjectMeta: metav1.ObjectMeta{Name: s.lease}, Spec: coordinationv1.LeaseSpec{HolderIdentity: &s.holder, RenewTime: &renewed},
				}
				of, gap := h.seen(lease, at)
				if got = gap; !gap.IsZero() && of != 3 {
					t.Errorf("a gap of slot %d", of)
				}
			}
			want := member.Gap{}
			if tc.to > 0 {
				want = member.Gap{From: start.Add(tc.from), To: start.Add(tc.to)}
			}
			if got != want {
				t.Errorf("got %s, want %s", got, want)
			}
		})
	}
}

func TestLeaseWithoutTimeEndsNoGap(t *testing.T) {
	h := newHolders(protocol.Settings{Config: member.DefaultConfig(), Fleet: "fleet", Slots: 16}, member.Moment{})
	for _, holder := range []string{"fleet-0_aaaaa", "", "fleet-1_bbbbb"} {
		lease := &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Name: "fleet-slot-003"}, Spec: coordinationv1.LeaseSpec{HolderIdentity: &holder},
		}
		if _, gap := h.seen(lease, member.Moment{Wall: time.Now()}); !gap.IsZero() {
			t.Errorf("holder %q: a gap %s", holder, gap)
		}
	}
}
