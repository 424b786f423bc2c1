package session

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/utils/clock"

	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/apiserver"
	"github.com/machine-controller-fleet/machine-controller-fleet/shard/session/protocol"
)

// lateGrants report the objects of slots as complete when the test says so.
type lateGrants struct {
	openings

	complete []func()
}

func (l *lateGrants) Add(slots []int, complete func(slots []int)) {
	l.complete = append(l.complete, func() { complete(slots) })
}

// The objects of a slot that was lost, and acquired again, become complete for the earlier
// ownership: that opens nothing, because those of the later one are not complete.
func TestObjectsOfAnEarlierOwnershipDoNotOpenTheSlot(t *testing.T) {
	grants := &lateGrants{}
	_, step := stepped(t, clock.RealClock{}, grants, nil)
	step(protocol.Change{Slot: 3, Epoch: 1, Kind: protocol.Acquired})
	step(protocol.Change{Slot: 3, Kind: protocol.Lost})
	step(protocol.Change{Slot: 3, Epoch: 2, Kind: protocol.Acquired})
	for i, want := range [][][]int{nil, {{3}}} {
		grants.complete[i]()
		step()
		if diff := cmp.Diff(want, grants.calls); diff != "" {
			t.Errorf("after the objects of ownership %d were complete, opened (-want +got):\n%s", i+1, diff)
		}
	}
}

// The election may call back for a term that has ended: the callback that ends the leadership was
// called before.
func TestTermThatHasEndedBeginsNoLeadership(t *testing.T) {
	r, _ := stepped(t, clock.RealClock{}, &openings{}, nil)
	term, end := context.WithCancel(t.Context())
	late := &leadership{Replica: r}
	end()
	late.endLeading(t.Context())
	late.beginLeading(term)
	if late.in {
		t.Error("the session leads in a term that has ended")
	}
}

// The answers to the leader's renewals come late, and then renewals fail: the leadership's fence
// passes as long after the last renewal was sent as others wait, and not after its answer.
func TestLeadershipEndsByTheSendOfItsLastRenewal(t *testing.T) {
	const late = 3 * time.Second
	synctest.Test(t, func(t *testing.T) {
		server := newServer()
		p := begin(t, server, "fleet-0")
		wantAll(t, time.Minute, p)
		renews := func(r apiserver.Request) bool {
			return r.Method == http.MethodPut && strings.HasSuffix(r.URL.Path, "/"+leaderLease)
		}
		var sent atomic.Pointer[time.Time]
		var fails atomic.Bool
		server.Fault(func(r apiserver.Request) error {
			if !renews(r) {
				return nil
			}
			if fails.Load() {
				return errors.New("refused")
			}
			now := time.Now()
			sent.Store(&now)
			return nil
		})
		server.Lose(func(r apiserver.Request) error {
			if renews(r) {
				time.Sleep(late)
				fails.Store(sent.Load() != nil)
			}
			return nil
		})
		var last time.Time
		for begun := time.Now(); time.Since(begun) < time.Minute; time.Sleep(10 * time.Millisecond) {
			if _, done, ok := p.cfg.Fence.Lead(t.Context()); ok {
				done()
				last = time.Now()
			}
		}
		if led := last.Sub(*sent.Load()); led > p.cfg.Settings.Config.Fence {
			t.Errorf("it led for %s after its last renewal was sent, want at most %s", led, p.cfg.Settings.Config.Fence)
		}
	})
}
