package protocol

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	member "github.com/machine-controller-fleet/machine-controller-fleet/membership"
)

// full is a session of the largest fleet: 4096 slots in quarantine, and 32 other sessions, all but
// one of which have confirmed.
type full struct {
	*Session

	now     time.Duration
	version int
}

const (
	fullSlots    = 4096
	fullSessions = 32
)

func newFull(b *testing.B) *full {
	b.Helper()
	replica, err := NewSession(settings(fullSlots))
	if err != nil {
		b.Fatal(err)
	}
	f := &full{Session: replica, now: time.Second}
	var sessions, uids []string
	for n := range fullSessions {
		sessions = append(sessions, member.Identity(fmt.Sprintf("machine-controller-fleet-%d", n), "aaaaa"))
	}
	var leases []*coordinationv1.Lease
	for slot := range fullSlots {
		l := f.stamp(newLease("fleet", "ns", member.SlotLeaseName("fleet", slot, fullSlots)))
		l.UID = types.UID(fmt.Sprintf("01234567-89ab-cdef-0123-%012d", slot))
		uids = append(uids, string(l.UID))
		member.Annotate(l, v1alpha1.AnnotationLeaseUID, string(l.UID))
		member.Annotate(l, v1alpha1.AnnotationQuarantine, strings.Join(sessions, ","))
		assign("r-0")(l)
		leases = append(leases, l)
	}
	for n, session := range sessions {
		confirmed := ""
		if n > 0 {
			confirmed = strings.Join(uids, ",")
		}
		leases = append(leases, f.session(n, session, confirmed))
	}
	f.step(b, Listed{leases})
	for range 10 { // it renews its own Lease
		f.now += 2 * time.Second
		f.step(b, Woke{})
	}
	if f.Suspended() {
		b.Fatal("want a session that may act")
	}
	return f
}

func (f *full) stamp(l *coordinationv1.Lease) *coordinationv1.Lease {
	f.version++
	l.ResourceVersion = strconv.Itoa(f.version)
	return l
}

// session returns the next version of a session Lease.
func (f *full) session(n int, session, confirmed string) *coordinationv1.Lease {
	l := newLease("fleet", "ns", member.SessionLeaseName("fleet", fmt.Sprintf("machine-controller-fleet-%d", n)))
	l.UID = "u"
	heldBy(session)(l)
	member.Annotate(l, v1alpha1.AnnotationConfirmed, confirmed)
	return f.stamp(l)
}

// step applies an event, and answers the requests that follow.
func (f *full) step(b *testing.B, event Event) {
	b.Helper()
	for events := []Event{event}; len(events) > 0; events = events[1:] {
		out := f.Step(at(f.now), events[0])
		for _, req := range out.Requests {
			reply := member.Reply{ID: req.ID, Sent: at(f.now), Outcome: member.Done}
			switch req.Verb {
			case member.Get:
				reply.Outcome = member.NotFound
			case member.List:
				for _, s := range f.slots {
					reply.Leases = append(reply.Leases, s.lease)
				}
				for n := range fullSessions {
					replica := fmt.Sprintf("machine-controller-fleet-%d", n)
					reply.Leases = append(reply.Leases, f.session(n, member.Identity(replica, "aaaaa"), f.others.Peer(replica).Confirmed))
				}
			case member.Create, member.Update:
				reply.Lease = f.stamp(req.Lease.DeepCopy())
				if reply.Lease.UID == "" {
					reply.Lease.UID = "own"
				}
			}
			events = append(events, Replied{reply})
		}
	}
}

func BenchmarkStep(b *testing.B) {
	b.Run("renewal of another session", func(b *testing.B) {
		f := newFull(b)
		session := member.Identity("machine-controller-fleet-1", "aaaaa")
		confirmed := f.others.Peer("machine-controller-fleet-1").Confirmed
		for b.Loop() {
			f.Step(at(f.now), Seen{f.session(1, session, confirmed)})
		}
	})
	b.Run("all slots in quarantine", func(b *testing.B) {
		f := newFull(b)
		for b.Loop() {
			f.touchAll()
			f.Step(at(f.now), Woke{})
		}
	})
	b.Run("another session has confirmed all", func(b *testing.B) {
		f := newFull(b)
		session := member.Identity("machine-controller-fleet-1", "aaaaa")
		text := f.others.Peer("machine-controller-fleet-1").Confirmed
		for n := 0; b.Loop(); n++ {
			f.Step(at(f.now), Seen{f.session(1, session, text[:len(text)-37*(n%2)])})
		}
	})
	b.Run("facts", func(b *testing.B) {
		f := newFull(b)
		for b.Loop() {
			f.Facts(at(f.now))
		}
	})
}
