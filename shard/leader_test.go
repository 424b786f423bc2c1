package shard

import (
	"errors"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/machine-controller-fleet/machine-controller-fleet/membership/leasetest"
	member "github.com/machine-controller-fleet/machine-controller-fleet/membership/state"
)

const leaderLease = "fleet-leader"

// ofReplica reports whether a request was sent by a replica.
func ofReplica(r *http.Request, replica string) bool {
	return strings.Contains(r.Header.Get("User-Agent"), "/"+replica+" ")
}

// The goroutine of the election stops for longer than a take-over in the middle of a renewal. When it goes on, its view of
// the leader Lease is old, and client-go releases a Lease that it believes to be its own.
func TestALeaderThatWakesUpDoesNotEmptyItsSuccessorsLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := leasetest.NewServer()
		a := begin(t, server, "fleet-0")
		wantAll(t, 25*time.Second, a)
		b := begin(t, server, "fleet-1")
		wantAll(t, time.Minute, a, b)
		if holder := member.Holder(server.Leases()[leaderLease]); holder != a.cfg.Settings.Session {
			t.Fatalf("%q leads, want %s", holder, a.cfg.Settings.Session)
		}
		var asleep atomic.Bool
		server.Fault(func(r *http.Request) error {
			renews := r.Method == http.MethodPut && strings.HasSuffix(r.URL.Path, "/"+leaderLease) && ofReplica(r, "fleet-0")
			if !renews || asleep.Swap(true) {
				return nil
			}
			time.Sleep(30 * time.Second)
			return errors.New("the connection was lost")
		})
		led := false
		for begun := time.Now(); time.Since(begun) < time.Minute; time.Sleep(10 * time.Millisecond) {
			switch holder := member.Holder(server.Leases()[leaderLease]); {
			case holder == b.cfg.Settings.Session:
				led = true
			case led:
				t.Fatalf("%s led, and %s later the leader Lease has the holder %q", b.cfg.Settings.Session, time.Since(begun), holder)
			}
		}
		if !led {
			t.Errorf("%s has not become the leader", b.cfg.Settings.Session)
		}
	})
}
