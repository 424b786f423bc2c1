package membership

import coordinationv1 "k8s.io/api/coordination/v1"

// Verb is the operation of a request.
type Verb string

// The verbs of requests about Leases. There is no patch and no delete.
const (
	// Get reads the Lease of the request's name, live.
	Get Verb = "get"
	// List reads all Leases of the fleet, consistently: with the resourceVersion "".
	List Verb = "list"
	// Create creates the request's Lease.
	Create Verb = "create"
	// Update writes the request's Lease, which carries the UID and the resourceVersion that it was
	// read with.
	Update Verb = "update"
)

// Need states what the sender has to hold immediately before the request is sent. If it does not,
// the request is not sent, and is answered as Refused.
type Need string

// The needs of requests.
const (
	// NeedNothing is for reads and for the session's own Lease.
	NeedNothing Need = "nothing"
	// NeedFence: the fence has not passed.
	NeedFence Need = "fence"
	// NeedLeadership: the session leads, and neither its own fence nor that of the leader Lease has
	// passed.
	NeedLeadership Need = "leadership"
)

// Request is one request about Leases, for the caller to send. Each is answered by exactly one
// Reply.
type Request struct {
	// ID identifies the request; it is never used again in the life of a session.
	ID uint64
	// Verb is the kind of the request.
	Verb Verb
	// Name is the Lease's; empty for List.
	Name string
	// Lease is the Lease to write; nil for Get and List. The caller must not change it.
	Lease *coordinationv1.Lease
	// Need is checked immediately before the request is sent.
	Need Need
}

// Outcome is the outcome of a request.
type Outcome string

// The outcomes of requests.
const (
	// Done: the request took effect, and the reply has what was read or written.
	Done Outcome = "done"
	// Conflict: an update named a UID or a resourceVersion that is not the Lease's. Nothing has
	// changed.
	Conflict Outcome = "conflict"
	// NotFound: there is no such Lease.
	NotFound Outcome = "notFound"
	// Exists: a create found a Lease of that name.
	Exists Outcome = "exists"
	// Unanswered: no answer within Config.RequestTimeout, or an unclear one. The request may have
	// taken effect, or may do so later.
	Unanswered Outcome = "unanswered"
	// Refused: the request certainly has no effect. It was not sent, or the API server refused it.
	Refused Outcome = "refused"
)

// Reply answers a Request.
type Reply struct {
	// ID is the request's.
	ID uint64
	// Sent is a moment before the request was sent, as close to it as possible and never after it.
	Sent Moment
	// Outcome is the outcome of the request.
	Outcome Outcome
	// Lease is the one that was read or written, if the outcome is Done; nil for List.
	Lease *coordinationv1.Lease
	// Leases are those that List has read.
	Leases []*coordinationv1.Lease
}
