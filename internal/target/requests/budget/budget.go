package budget

import (
	"fmt"
	"time"
)

const (
	// MostInFlight is how many requests are in flight to one target cluster: with an answer in 20
	// ms that are more than Rate in a second. Of 800 workers 10 clusters that hang can occupy
	// half.
	MostInFlight = 40
	// LeastInFlight is the share of a cluster when many are in use at the same time.
	LeastInFlight = 4
	// Rate is how many requests are sent to one target cluster in a second. A Node that joins takes
	// some five requests, and a drain one for each pod.
	Rate = 200
	// Burst is how many are sent at once after a pause.
	Burst = 400
	// Failures is how many requests of a kind have to fail in a row until one is sent at a time.
	Failures = 5
	// Unauthenticated is how many times the server has to reject the credentials in a row for the
	// same: once it may be those that have just been replaced.
	Unauthenticated = 2
	// FirstPause is the time until the first of these, which each failure doubles.
	FirstPause = 2 * time.Second
	// LongestPause is the longest pause, and the longest that is kept at the request of a server.
	LongestPause = 30 * time.Second
	// settled is for how long requests have to be answered before the pauses begin anew.
	settled = 2 * time.Minute
	// crowded is the shortest wait of a request that was refused because of MostInFlight. Those
	// that are refused in a row wait longer by step each, up to twice as long, so that they come
	// apart.
	crowded = time.Second
	step    = 5 * time.Millisecond
)

// Share returns how many requests may be in flight to one of so many clusters that are in use, of
// total for all of them.
func Share(total, clusters int) int {
	return min(max(total/max(clusters, 1), LeastInFlight), MostInFlight)
}

// Kind is the kind of a request. A server may answer those of one kind only.
type Kind int

// The kinds.
const (
	Read Kind = iota
	Write
	kinds
)

// String returns the name of the kind.
func (k Kind) String() string {
	if k == Read {
		return "read"
	}
	return "write"
}

// Refusal is why a request is not sent.
type Refusal int

// The reasons.
const (
	None    Refusal = iota
	Crowded         // too many are in flight
	Fast            // too many were sent in the last seconds
	Open            // those before have failed
)

// Refusals returns all reasons.
func Refusals() []Refusal { return []Refusal{Crowded, Fast, Open} }

// String returns the name of the reason.
func (r Refusal) String() string {
	return [...]string{None: "none", Crowded: "in_flight", Fast: "rate", Open: "failures"}[r]
}

// Budget is that of one target cluster. The zero value has sent nothing. It is not safe for
// concurrent use.
type Budget struct {
	inFlight int
	crowd    int       // refused since a request was sent
	paid     time.Time // by when what was sent would have been sent at Rate
}

// Breaker has the failures of those who reach a target cluster in the same way: the credentials of
// others fail for other reasons. The zero value has none. It is not safe for concurrent use.
type Breaker struct{ rows [kinds]row }

// row has the failures of one kind.
type row struct {
	failed   int
	rejected int           // of these, with which the credentials were rejected in a row
	why      string        // of the last failure
	pause    time.Duration // 0 before the first; kept for a while after an answer
	open     bool
	until    time.Time // the end of the pause, while it is open
	probes   bool      // a request is in flight that was sent at the end of the pause
	closed   time.Time
}

// Answer is whether a request may be sent.
type Answer struct {
	Refusal Refusal
	// Wait is after which time to try again, if it may not.
	Wait time.Duration
	// Probe is for End, if it may.
	Probe bool
}

// Ask returns whether a request may be sent now, when a share may be in flight. If so, End is
// called when it has ended.
func (b *Budget) Ask(breaker *Breaker, kind Kind, share int, now time.Time) Answer {
	r := &breaker.rows[kind]
	if r.open && (r.probes || r.until.After(now)) {
		return Answer{Refusal: Open, Wait: r.wait(now)}
	}
	if b.inFlight >= share {
		b.crowd++
		return Answer{Refusal: Crowded, Wait: crowded + step*time.Duration(b.crowd%int(crowded/step))}
	}
	const interval = time.Second / Rate
	if wait := b.paid.Add(-(Burst - 1) * interval).Sub(now); wait > 0 {
		b.crowd++
		return Answer{Refusal: Fast, Wait: wait + step*time.Duration(b.crowd%int(crowded/step))}
	}
	if b.paid.Before(now) {
		b.paid = now
	}
	b.paid = b.paid.Add(interval)
	b.inFlight++
	b.crowd = 0
	r.probes = r.open
	return Answer{Probe: r.open}
}

// wait returns after which time another request may be sent while it is open.
func (r *row) wait(now time.Time) time.Duration {
	if wait := r.until.Sub(now); wait > 0 {
		return wait
	}
	return r.next()
}

func (r *row) next() time.Duration { return min(max(2*r.pause, FirstPause), LongestPause) }

// IsOpen reports whether requests are sent one at a time, because those before have failed. There
// is no Problem at the end of a pause, and its end was not reported.
func (b *Breaker) IsOpen() bool {
	for kind := range kinds {
		if b.rows[kind].open {
			return true
		}
	}
	return false
}

// Problem returns what is wrong with the server, and after which time a request is sent again; ""
// if requests are sent.
func (b *Breaker) Problem(now time.Time) (why string, wait time.Duration) {
	for kind := range kinds {
		if r := &b.rows[kind]; r.open && (r.probes || r.until.After(now)) {
			if r.rejected >= Unauthenticated {
				return "its API server rejects the credentials: " + r.why, r.wait(now)
			}
			return fmt.Sprintf("its API server has failed %d %ss or more in a row, the last one with: %s", Failures, kind, r.why), r.wait(now)
		}
	}
	return "", 0
}

// InFlight returns how many requests have not ended.
func (b *Budget) InFlight() int { return b.inFlight }

// Evidence classifies what the end of a request shows about the server.
type Evidence int

// The kinds of evidence.
const (
	Nothing Evidence = iota
	Answered
	Failed
	Rejected // the credentials are
)

// Outcome is how a request has ended.
type Outcome struct {
	Evidence Evidence
	// Why describes the failure, for people.
	Why string
	// RetryAfter is the wait that the server requests; 0 for none.
	RetryAfter time.Duration
}

// Change classifies what the end of a request has changed.
type Change int

// The changes.
const (
	Unchanged Change = iota
	Opened
	Closed
)

// End records the end of a request that Ask has allowed; probe is that of the Answer.
func (b *Budget) End(breaker *Breaker, kind Kind, probe bool, o Outcome, now time.Time) Change {
	b.inFlight--
	r := &breaker.rows[kind]
	if probe {
		r.probes = false
	}
	switch o.Evidence {
	case Nothing:
	case Answered:
		wasOpen := r.open
		r.failed, r.rejected, r.open, r.probes = 0, 0, false, false
		if wasOpen {
			r.closed = now
			return Closed
		}
	case Failed, Rejected:
		r.failed++
		r.rejected++
		if o.Evidence == Failed {
			r.rejected = 0
		}
		r.why = o.Why
		if r.open && !probe || r.failed < Failures && r.rejected < Unauthenticated {
			return Unchanged
		}
		wasOpen := r.open
		if !wasOpen && now.Sub(r.closed) > settled {
			r.pause = 0
		}
		r.pause = r.next()
		r.open, r.until = true, now.Add(max(r.pause, min(o.RetryAfter, LongestPause)))
		if !wasOpen {
			return Opened
		}
	}
	return Unchanged
}
