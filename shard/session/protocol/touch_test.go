package protocol

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/worlds"
	member "github.com/machine-controller-fleet/machine-controller-fleet/membership"
)

// pair is a session that decides the slots that were touched, and one that decides all slots. They
// receive the same events.
type pair struct {
	*rapid.T
	touched, all *Session
	now          member.Moment
	entitled     []bool
}

func newPair(t *rapid.T, slots int) *pair {
	p := &pair{T: t, now: at(time.Second), entitled: make([]bool, slots)}
	for _, replica := range []**Session{&p.touched, &p.all} {
		created, err := NewSession(settings(slots))
		if err != nil {
			t.Fatal(err)
		}
		*replica = created
	}
	p.all.DecideAll()
	return p
}

// step passes an event to both, and compares their outputs.
func (p *pair) step(event Event) Output {
	out, want := p.touched.Step(p.now, event), p.all.Step(p.now, event)
	for _, slot := range out.Slots {
		_, p.entitled[slot] = p.touched.Entitled(slot)
	}
	for slot, was := range p.entitled {
		if _, is := p.touched.Entitled(slot); is != was && out.Exit == nil {
			p.Fatalf("after %T: the entitlement to slot %d has changed, and the step does not name the slot", event, slot)
		}
	}
	slots := out.Slots
	out.Slots, want.Slots = nil, nil
	if diff := cmp.Diff(want, out); diff != "" {
		p.Fatalf("after %T: want no output for slots that were not touched (-all slots decided, +touched ones):\n%s", event, diff)
	}
	out.Slots = slots
	return out
}

// TestUntouchedSlotsNeedNoDecision draws events with more slots than requests may be in flight, and
// sets the wall clock.
func TestUntouchedSlotsNeedNoDecision(t *testing.T) {
	worlds.Check(t, 1, func(t *rapid.T) {
		const slots = 3 * mostRequests
		w := &crowd{pair: newPair(t, slots), leases: map[string]*coordinationv1.Lease{}}
		w.apply(Listed{})
		w.apply(Elected{})
		for range rapid.IntRange(1, 150).Draw(t, "steps") {
			wait := rapid.SampledFrom([]time.Duration{
				0, 0, 10 * time.Millisecond, 500 * time.Millisecond, time.Second, 2 * time.Second, 5 * time.Second,
			}).Draw(t, "wait")
			w.now = w.now.Add(wait)
			if rapid.IntRange(0, 30).Draw(t, "clock") == 0 {
				w.now.Wall = w.now.Wall.Add(time.Duration(rapid.IntRange(-20, 20).Draw(t, "set")) * time.Second)
			}
			w.happens()
		}
	})
}

// crowd is a pair with an API server that usually executes requests.
type crowd struct {
	*pair
	leases  map[string]*coordinationv1.Lease
	open    []member.Request
	tickets []Idle
	version int
}

func (w *crowd) apply(event Event) {
	out := w.step(event)
	w.open = append(w.open, out.Requests...)
	for _, change := range out.Changes {
		if change.Ticket != 0 {
			w.tickets = append(w.tickets, Idle{Slot: change.Slot, Ticket: change.Ticket})
		}
	}
}

func (w *crowd) happens() {
	switch kind := rapid.SampledFrom([]string{
		"answers", "answers", "answers", "answers", "idle", "woke", "session", "slot", "gone", "leads", "leaves",
	}).Draw(w.T, "event"); kind {
	case "answers":
		for n := min(len(w.open), rapid.IntRange(1, 2*mostRequests).Draw(w.T, "answers")); n > 0; n-- {
			w.answer()
		}
	case "idle":
		for n := min(len(w.tickets), rapid.IntRange(1, 20).Draw(w.T, "idle")); n > 0; n-- {
			idle := w.tickets[0]
			w.tickets = w.tickets[1:]
			w.apply(idle)
		}
	case "session":
		w.otherSession()
	case "slot":
		w.put(w.slot(), func(l *coordinationv1.Lease) {
			assign(rapid.SampledFrom([]string{"r-0", "r-1", ""}).Draw(w.T, "assigned"))(l)
		})
	case "gone":
		if name := w.slot(); w.leases[name] != nil {
			gone := w.leases[name]
			delete(w.leases, name)
			w.apply(Gone{gone})
		}
	case "leads":
		w.apply(rapid.SampledFrom([]Event{Elected{}, Elected{}, Deposed{}}).Draw(w.T, "leads"))
	case "leaves":
		if rapid.IntRange(0, 20).Draw(w.T, "leaves") == 0 {
			w.apply(Leaving{})
		}
	default:
		w.apply(Woke{})
	}
}

// slot draws a slot Lease's name.
func (w *crowd) slot() string {
	return member.SlotLeaseName("fleet", rapid.IntRange(0, len(w.entitled)-1).Draw(w.T, "slot"), len(w.entitled))
}

// otherSession changes the other replica's session Lease: it confirms slots in quarantine, or is
// that of another session.
func (w *crowd) otherSession() {
	session := rapid.SampledFrom([]string{another, another, another, "r-1_ccccc", ""}).Draw(w.T, "session")
	confirmed := ""
	for number := range rapid.IntRange(0, len(w.entitled)).Draw(w.T, "confirms") {
		if l := w.leases[member.SlotLeaseName("fleet", number, len(w.entitled))]; l != nil {
			confirmed += string(l.UID) + ","
		}
	}
	w.put("fleet-session-r-1", func(l *coordinationv1.Lease) {
		heldBy(session)(l)
		member.Annotate(l, v1alpha1.AnnotationConfirmed, confirmed)
	})
	w.put("fleet-report-r-1", func(l *coordinationv1.Lease) {
		heldBy(session)(l)
		member.Annotate(l, v1alpha1.AnnotationWeights, fmt.Sprintf("0:%d", rapid.IntRange(0, 9).Draw(w.T, "weight")))
	})
}

// put stores a change of a Lease and shows it.
func (w *crowd) put(name string, change func(*coordinationv1.Lease)) {
	l := newLease("fleet", "ns", name)
	if stored := w.leases[name]; stored != nil {
		l = stored.DeepCopy()
	}
	change(l)
	w.apply(Seen{w.store(l)})
}

func (w *crowd) store(l *coordinationv1.Lease) *coordinationv1.Lease {
	w.version++
	l.ResourceVersion = strconv.Itoa(w.version)
	if l.UID == "" {
		l.UID = types.UID("uid-" + l.ResourceVersion)
	}
	w.leases[l.Name] = l
	return l
}

// answer answers the oldest request, and shows what it has changed.
func (w *crowd) answer() {
	request := w.open[0]
	w.open = w.open[1:]
	reply := member.Reply{ID: request.ID, Sent: w.now, Outcome: member.Done}
	if rapid.IntRange(0, 30).Draw(w.T, "fails") == 0 {
		reply.Outcome = rapid.SampledFrom([]member.Outcome{member.Unanswered, member.Refused, member.Conflict}).Draw(w.T, "outcome")
		w.apply(Replied{reply})
		return
	}
	stored := w.leases[request.Name]
	switch {
	case request.Verb == member.List:
		for _, l := range w.leases {
			reply.Leases = append(reply.Leases, l)
		}
	case request.Verb == member.Create && stored != nil:
		reply.Outcome = member.Exists
	case request.Verb == member.Create:
		reply.Lease = w.store(request.Lease.DeepCopy())
	case stored == nil:
		reply.Outcome = member.NotFound
	case request.Verb == member.Get:
		reply.Lease = stored
	case stored.ResourceVersion != request.Lease.ResourceVersion || stored.UID != request.Lease.UID:
		reply.Outcome = member.Conflict
	default:
		reply.Lease = w.store(request.Lease.DeepCopy())
	}
	w.apply(Replied{reply})
	if reply.Lease != nil && request.Verb != member.Get {
		w.apply(Seen{reply.Lease})
	}
}
