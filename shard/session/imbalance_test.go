package session

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/machine-controller-fleet/machine-controller-fleet/shard/session/protocol"
)

// Weights count as they are reported, and sessions that have ended do not.
func TestTheImbalanceIsThatOfReportedWeights(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newServer()
		a, b := begin(t, server, "fleet-0"), begin(t, server, "fleet-1")
		wantAll(t, time.Minute, a, b)
		time.Sleep(10 * time.Second)
		wantMetrics(t, b, 2, 1)
		close(a.leave)
		if err := <-a.ended; err != nil {
			t.Error(err)
		}
		wantAll(t, 25*time.Second, b)
		wantMetrics(t, b, 1, 1)
	})
	facts := &protocol.Facts{
		Sessions: []protocol.SessionFacts{{Session: "a", Capacity: 1}, {Session: "b", Capacity: 3}, {Session: "", Capacity: 1}},
		Slots:    []protocol.SlotFacts{{Holder: "a", Owned: true, Weight: 4}, {Holder: "b", Owned: true, Weight: 4}, {Holder: "dead", Weight: 9}},
	}
	m := NewMetrics(prometheus.NewRegistry())
	m.observe(facts, 0)
	if got := testutil.ToFloat64(m.imbalance); got != 2 { // a carries 4 where it should carry 2
		t.Errorf("imbalance %v, want 2", got)
	}
}

func wantMetrics(t *testing.T, p *process, sessions, imbalance float64) {
	t.Helper()
	if got := testutil.ToFloat64(p.metrics.sessions); got != sessions {
		t.Errorf("%v sessions, want %v", got, sessions)
	}
	if got := testutil.ToFloat64(p.metrics.imbalance); got < imbalance || got > imbalance*1.15 {
		t.Errorf("imbalance %v, want %v", got, imbalance)
	}
}
