package protocol

import (
	"slices"
	"strconv"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/worlds"
	member "github.com/machine-controller-fleet/machine-controller-fleet/membership"
)

// TestAnyOrder passes events in any order, true or not, to a session, and checks the invariants of
// every step.
func TestAnyOrder(t *testing.T) {
	worlds.Check(t, 1, func(t *rapid.T) {
		w := newWild(t)
		for range rapid.IntRange(1, 120).Draw(t, "steps") {
			w.now += rapid.SampledFrom([]time.Duration{0, 0, 0, 100 * time.Millisecond, time.Second, 2 * time.Second, 10 * time.Second}).Draw(t,
				"wait")
			w.check(w.replica.Step(at(w.now), w.event()))
		}
	})
}

// wild is a session in a world where anything may happen.
type wild struct {
	*rapid.T
	replica *Session
	now     time.Duration
	open    []member.Request
	tickets []Idle
	version int
	exited  bool
}

func newWild(t *rapid.T) *wild {
	replica, err := NewSession(settings(2))
	if err != nil {
		t.Fatal(err)
	}
	return &wild{T: t, replica: replica, now: time.Second}
}

// event draws an event.
func (w *wild) event() Event {
	kinds := []string{"woke", "woke", "seen", "seen", "gone", "listed", "idle", "elected", "deposed", "weighed", "leaving"}
	if len(w.open) > 0 {
		kinds = append(kinds, "reply", "reply", "reply", "reply", "reply", "reply", "reply", "reply")
	}
	switch rapid.SampledFrom(kinds).Draw(w.T, "event") {
	case "seen":
		return Seen{w.lease()}
	case "gone":
		return Gone{w.lease()}
	case "listed":
		return Listed{[]*coordinationv1.Lease{w.lease(), w.lease()}}
	case "idle":
		if len(w.tickets) > 0 {
			return rapid.SampledFrom(w.tickets).Draw(w.T, "ticket")
		}
	case "elected":
		return Elected{}
	case "deposed":
		return Deposed{}
	case "weighed":
		return Weighed{Weights: map[int]int64{0: int64(rapid.IntRange(0, 9).Draw(w.T, "weight"))}}
	case "leaving":
		if rapid.IntRange(0, 9).Draw(w.T, "leaves") == 0 {
			return Leaving{}
		}
	case "reply":
		return Replied{w.reply()}
	}
	return Woke{}
}

// lease draws any Lease of the fleet.
func (w *wild) lease() *coordinationv1.Lease {
	w.version++
	l := newLease("fleet", "ns", rapid.SampledFrom([]string{
		"fleet-slot-000", "fleet-slot-001", "fleet-session-r-0", "fleet-session-r-1", "fleet-leader",
	}).Draw(w.T, "name"))
	l.UID = rapid.SampledFrom([]types.UID{"u", "u", "v"}).Draw(w.T, "uid")
	l.ResourceVersion = strconv.Itoa(w.version)
	heldBy(rapid.SampledFrom([]string{"", me, another, "nonsense"}).Draw(w.T, "holder"))(l)
	assign(rapid.SampledFrom([]string{"", "r-0", "r-1"}).Draw(w.T, "assigned"))(l)
	if rapid.Bool().Draw(w.T, "genuine") {
		member.Annotate(l, v1alpha1.AnnotationLeaseUID, "u")
	}
	return l
}

// reply draws an answer to an open request.
func (w *wild) reply() member.Reply {
	i := rapid.IntRange(0, len(w.open)-1).Draw(w.T, "request")
	request := w.open[i]
	w.open = slices.Delete(w.open, i, i+1)
	outcome := rapid.SampledFrom([]member.Outcome{
		member.Done, member.Done, member.Done, member.Done, member.Conflict, member.NotFound, member.Exists, member.Unanswered, member.Refused,
	}).Draw(w.T, "outcome")
	reply := member.Reply{ID: request.ID, Sent: at(w.now), Outcome: outcome}
	if outcome != member.Done {
		return reply
	}
	w.version++
	switch request.Verb {
	case member.Get:
		reply.Lease = w.lease()
		reply.Lease.Name = request.Name
	case member.List:
		reply.Leases = []*coordinationv1.Lease{w.lease(), w.lease()}
	case member.Create, member.Update:
		reply.Lease = request.Lease.DeepCopy()
		reply.Lease.UID, reply.Lease.ResourceVersion = "u", strconv.Itoa(w.version)
	}
	return reply
}

// check checks the invariants of every step.
func (w *wild) check(out Output) {
	if w.exited && (len(out.Requests) > 0 || len(out.Changes) > 0) {
		w.Fatalf("output after the exit: %+v", out)
	}
	w.exited = w.exited || out.Exit != nil
	for _, request := range out.Requests {
		w.checkRequest(request)
		w.open = append(w.open, request)
	}
	for _, change := range out.Changes {
		if change.Ticket != 0 {
			w.tickets = append(w.tickets, Idle{Slot: change.Slot, Ticket: change.Ticket})
		}
		if expects := change.Kind != Acquired && change.Kind != Resumed; expects != (change.Ticket != 0) {
			w.Fatalf("change %+v: want a ticket exactly if an answer is expected", change)
		}
	}
	fence := w.replica.Fence()
	if !w.replica.Suspended() && at(w.now).Reached(fence) {
		w.Fatalf("not suspended at %v, after the fence %v", w.now, fence.Monotonic)
	}
	for slot := range 2 {
		if _, ok := w.replica.Entitled(slot); ok && (w.replica.Suspended() || fence.IsZero()) {
			w.Fatalf("entitled to slot %d while suspended", slot)
		}
	}
	if !out.WakeAt.IsZero() && out.WakeAt.Since(at(w.now)) <= 0 {
		w.Fatalf("at %v: wakes up at %v: it would loop without a pause", w.now, out.WakeAt.Monotonic)
	}
	if !w.exited && len(w.open) == 0 && out.WakeAt.IsZero() {
		w.Fatalf("no request is open and no step is due")
	}
}

// checkRequest checks that a request is safe to send.
func (w *wild) checkRequest(request member.Request) {
	if request.Verb == member.Update && (request.Lease.UID == "" || request.Lease.ResourceVersion == "") {
		w.Fatalf("update of %s without UID or resourceVersion", request.Name)
	}
	for _, open := range w.open {
		if open.ID == request.ID {
			w.Fatalf("ID %d is used twice", open.ID)
		}
		if open.Name == request.Name && isWrite(open) && isWrite(request) {
			w.Fatalf("two writes of %s at once", request.Name)
		}
	}
	if !isWrite(request) || request.Name == "fleet-session-r-0" {
		return
	}
	if request.Need == member.NeedNothing {
		w.Fatalf("%s of %s needs neither fence nor leadership", request.Verb, request.Name)
	}
	if w.replica.Suspended() {
		w.Fatalf("%s of %s while suspended", request.Verb, request.Name)
	}
	if request.Verb == member.Create && member.Holder(request.Lease) != "" {
		w.Fatalf("%s is created with a holder", request.Name)
	}
}

func isWrite(r member.Request) bool { return r.Verb == member.Create || r.Verb == member.Update }
