package session

import (
	"errors"
	"maps"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/apiserver"
	member "github.com/machine-controller-fleet/machine-controller-fleet/membership"
	"github.com/machine-controller-fleet/machine-controller-fleet/shard/session/protocol"
)

const leaderLease = "fleet-leader"

// ofReplica reports whether a request was sent by a replica.
func ofReplica(r apiserver.Request, replica string) bool {
	return strings.Contains(r.Header.Get("User-Agent"), "/"+replica+" ")
}

// The goroutine of the election stops for longer than a take-over in the middle of a renewal. When
// it goes on, its view of the leader Lease is old, and client-go releases a Lease that it takes
// to be its own.
func TestALeaderThatWakesUpDoesNotEmptyItsSuccessorsLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newServer()
		a := begin(t, server, "fleet-0")
		wantAll(t, 25*time.Second, a)
		b := begin(t, server, "fleet-1")
		wantAll(t, time.Minute, a, b)
		if holder := member.Holder(server.Leases()[leaderLease]); holder != a.cfg.Settings.Session {
			t.Fatalf("%q leads, want %s", holder, a.cfg.Settings.Session)
		}
		var asleep atomic.Bool
		server.Fault(func(r apiserver.Request) error {
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

// The watch shows a follower that the leader lives. Where it does not, because the watch is silent
// or the leader is dead, the follower reads the Lease.
func TestFollowersReadTheLeaderLeaseOnlyWhenTheWatchShowsNoChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newServer()
		a := begin(t, server, "fleet-0")
		wantAll(t, 25*time.Second, a)
		b := begin(t, server, "fleet-1")
		wantAll(t, time.Minute, a, b)
		var reads atomic.Int32
		var dead atomic.Bool
		server.Fault(func(r apiserver.Request) error {
			if r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, "/"+leaderLease) {
				reads.Add(1)
			}
			if dead.Load() && ofReplica(r, "fleet-0") {
				return errors.New("the connection was lost")
			}
			return nil
		})
		time.Sleep(time.Minute)
		if n := reads.Load(); n > 3 {
			t.Errorf("the leader Lease was read %d times in a minute in which it was renewed every second, want at most 3", n)
		}
		dead.Store(true)
		time.Sleep(30 * time.Second)
		if holder := member.Holder(server.Leases()[leaderLease]); holder != b.cfg.Settings.Session || reads.Load() < 3 {
			t.Errorf("%q leads after %d reads, want %s", holder, reads.Load(), b.cfg.Settings.Session)
		}
	})
}

// A replica with other settings starts at a moment at which there is no leader Lease.
func TestADeletedLeaderLeaseDoesNotAdmitOtherSettings(t *testing.T) {
	for name, change := range otherSettings() {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := newServer()
				a, b := begin(t, server, "fleet-0"), begin(t, server, "fleet-1")
				wantAll(t, time.Minute, a, b)
				want := settingsOn(server.Leases()[leaderLease])
				server.Fault(func(r apiserver.Request) error { // the other replica is the first to write the leader Lease
					if r.Method == http.MethodPost && !ofReplica(r, "fleet-2") {
						return errors.New("refused")
					}
					return nil
				})
				server.Delete(leaderLease)
				c := begin(t, server, "fleet-2", change)
				select {
				case err := <-c.ended:
					exit, ok := errors.AsType[*ExitError](err)
					if !ok || exit.Reason != protocol.ReasonMismatch || !strings.Contains(exit.Message, "fleet-0_abcde") {
						t.Errorf("the replica with other settings ended with %v, want %s and the session that has others", err, protocol.ReasonMismatch)
					}
				case <-time.After(30 * time.Second):
					t.Error("the replica with other settings has not ended after 30 s")
				}
				if lease := server.Leases()["fleet-session-fleet-2"]; lease != nil {
					t.Errorf("the replica with other settings has created a session Lease: %v", lease)
				}
				server.Fault(nil)
				wantAll(t, time.Minute, a, b)
				wantAlive(t, a, b)
				if got := settingsOn(server.Leases()[leaderLease]); !maps.Equal(got, want) {
					t.Errorf("the leader Lease records %v, want %v", got, want)
				}
			})
		})
	}
}

// The record on the leader Lease is edited by hand, or written by a replica of an earlier version.
func TestSessionsSurviveOtherSettingsOnTheLeaderLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newServer()
		a, b := begin(t, server, "fleet-0"), begin(t, server, "fleet-1")
		wantAll(t, time.Minute, a, b)
		want := settingsOn(server.Leases()[leaderLease])
		server.Edit(leaderLease, func(l *coordinationv1.Lease) { l.Annotations[v1alpha1.AnnotationSlots] = "512" })
		time.Sleep(3 * time.Second)
		if got := settingsOn(server.Leases()[leaderLease]); !maps.Equal(got, want) {
			t.Errorf("the leader Lease records %v after 3 s, want %v", got, want)
		}
		wantAll(t, time.Minute, a, b)
		wantAlive(t, a, b)
	})
}

// Two replicas with different settings install a fleet at the same moment. Never do both act.
func TestReplicasThatInstallAFleetWithDifferentSettingsNeverBothAct(t *testing.T) {
	for name, change := range otherSettings() {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := newServer()
				server.Fault(func(r apiserver.Request) error { // both have read that there are no Leases before one is created
					if r.Method == http.MethodPost {
						time.Sleep(100 * time.Millisecond)
					}
					return nil
				})
				a, b := begin(t, server, "fleet-0"), begin(t, server, "fleet-1", change)
				for begun := time.Now(); time.Since(begun) < time.Minute; time.Sleep(10 * time.Millisecond) {
					if !a.fence.Until().IsZero() && !b.fence.Until().IsZero() {
						t.Fatalf("both sessions act after %s", time.Since(begun))
					}
				}
				if len(a.ended)+len(b.ended) == 0 {
					t.Error("no session has ended")
				}
			})
		})
	}
}

// Installing anew, and changing the durations, work as documented: what a session has recorded ends
// with it.
func TestSettingsCanBeChangedWhenNoSessionLives(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newServer()
		a, b := begin(t, server, "fleet-0"), begin(t, server, "fleet-1")
		wantAll(t, time.Minute, a, b)
		for _, p := range []*process{a, b} {
			close(p.leave)
			if err := <-p.ended; err != nil {
				t.Fatal(err)
			}
		}
		server.Delete(leaderLease)
		wantAll(t, time.Minute, begin(t, server, "fleet-0", otherSettings()["lease-take-over"]))
	})
}

// Lists are by label. The record on the leader Lease counts without one, too.
func TestALeaderLeaseWithoutLabelsStillRecordsTheSettings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newServer()
		a := begin(t, server, "fleet-0")
		wantAll(t, 25*time.Second, a)
		close(a.leave)
		if err := <-a.ended; err != nil {
			t.Fatal(err)
		}
		server.Edit(leaderLease, func(l *coordinationv1.Lease) { l.Labels = nil })
		select {
		case err := <-begin(t, server, "fleet-1", otherSettings()["slots"]).ended:
			if exit, ok := errors.AsType[*ExitError](err); !ok || exit.Reason != protocol.ReasonMismatch {
				t.Errorf("ended with %v, want %s", err, protocol.ReasonMismatch)
			}
		case <-time.After(30 * time.Second):
			t.Error("the replica with other settings has not ended after 30 s")
		}
		if lease := server.Leases()["fleet-session-fleet-1"]; lease != nil {
			t.Errorf("it has created a session Lease: %v", lease)
		}
	})
}

func otherSettings() map[string]func(*protocol.Settings) {
	return map[string]func(*protocol.Settings){
		"slots":           func(s *protocol.Settings) { s.Slots = 2 * fleetSlots },
		"lease-fence":     func(s *protocol.Settings) { s.Config.Fence = 10 * time.Second },
		"lease-take-over": func(s *protocol.Settings) { s.Config.TakeOver = 20 * time.Second },
	}
}

// settingsOn returns the settings that a Lease records.
func settingsOn(lease *coordinationv1.Lease) map[string]string {
	recorded := map[string]string{}
	for key := range protocol.Record(protocol.Settings{}) {
		recorded[key] = lease.GetAnnotations()[key]
	}
	return recorded
}

// wantAlive checks that no session has ended.
func wantAlive(t *testing.T, processes ...*process) {
	t.Helper()
	for _, p := range processes {
		select {
		case err := <-p.ended:
			t.Errorf("session %s has ended: %v", p.cfg.Settings.Session, err)
		default:
		}
	}
}
