package protocol

import (
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	member "github.com/machine-controller-fleet/machine-controller-fleet/membership"
)

const (
	// mostRequests is how many requests for slot Leases may be in flight at once.
	mostRequests = 32
	// retryAfter is the wait after a request that had no effect.
	retryAfter = 500 * time.Millisecond
)

// about is the purpose of a request.
type about int

const (
	aboutOwn about = iota
	aboutReread
	aboutSlot
	aboutProof
	aboutDeath
	aboutCensus
	aboutRestore
	aboutReport
)

// question is the context of a request that is not answered yet.
type question struct {
	about about
	verb  member.Verb
	// step is the one that sent it: what a read shows is at least as new as what was known then.
	step uint64
	slot *slot
	// acquired is the acquireTime that the request writes, if it acquires.
	acquired time.Time
	// releases is true if it clears the holder.
	releases bool
	session  string
	// leads is true if only the leader sends it, for the Lease of that name.
	leads bool
	name  string
}

// outbox contains what a step returns, and the requests of earlier steps that are not answered.
type outbox struct {
	steps   uint64
	out     Output
	nextID  uint64
	pending map[uint64]question
	inUse   int // requests for slot Leases that are not answered
	// lastTime is the last timestamp that we wrote into a slot Lease.
	lastTime time.Time
	tickets  uint64
}

// send sends a request.
func (o *outbox) send(request member.Request, q question) {
	o.nextID++
	request.ID = o.nextID
	q.step, q.verb, q.leads, q.name = o.steps, request.Verb, request.Need == member.NeedLeadership, request.Name
	o.pending[request.ID] = q
	o.out.Requests = append(o.out.Requests, request)
}

// sendForSlot sends a request for a slot Lease, the only one in flight for that Lease.
func (o *outbox) sendForSlot(s *slot, request member.Request, q question) {
	s.pending = true
	o.inUse++
	request.Name, q.about, q.slot = s.name, aboutSlot, s
	o.send(request, q)
}

// hasRoom reports whether one more request for a slot Lease may be in flight.
func (o *outbox) hasRoom() bool { return o.inUse < mostRequests }

// answered returns the context of a request of ours that is answered now; ok is false for any other
// answer.
func (o *outbox) answered(id uint64) (q question, ok bool) {
	q, ok = o.pending[id]
	delete(o.pending, id)
	if ok && q.about == aboutSlot {
		q.slot.pending = false
		o.inUse--
	}
	return q, ok
}

func (o *outbox) exit(e Exit) { o.out.Exit = &e }

func (o *outbox) change(c Change) { o.out.Changes = append(o.out.Changes, c) }

// ticket returns a ticket that was never used.
func (o *outbox) ticket() uint64 {
	o.tickets++
	return o.tickets
}

// timestamp returns the time for a Lease, which identifies our writes: no two are the same.
func (o *outbox) timestamp(now member.Moment) time.Time {
	t := now.Cluster().Truncate(time.Microsecond)
	if !t.After(o.lastTime) {
		t = o.lastTime.Add(time.Microsecond)
	}
	o.lastTime = t
	return t
}

// written returns a copy of the slot's Lease to change, with the time of the change for operators.
func (o *outbox) written(now member.Moment, s *slot) *coordinationv1.Lease {
	l := s.lease.DeepCopy()
	member.Untrack(l)
	renew := metav1.NewMicroTime(o.timestamp(now))
	l.Spec.RenewTime = &renew
	return l
}
