package membership

import (
	"maps"
	"slices"
	"strconv"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
)

// Peer is the content of a replica's session Lease.
type Peer struct {
	// Replica is the replica of the Lease, Session its holder: "" is none.
	Replica, Session string
	// Leaving: the session hands its slots over, or has done so.
	Leaving bool
	// Capacity is how much the replica should hold in relation to others, 1 if it is not reported.
	Capacity float64
	// Confirmed and Accounts are the values of the annotations of these names, Weights and Counts
	// those that sessions of an earlier version report on their session Lease.
	Weights, Confirmed, Counts, Accounts string
	// Fitness is the report of what the session can do.
	Fitness Fitness
}

// peer is a session Lease as it was last observed.
type peer struct {
	Peer
	lease *coordinationv1.Lease
	// changed is when its version was first observed, seen when a Lease of its UID was.
	changed, seen Moment
	// gone is since when there is no such Lease; the zero Moment while there is one.
	gone Moment
	// replaced is true if an earlier Lease of the same name was observed.
	replaced bool
}

// Others are the session Leases of the whole fleet, our own among them, timed by what this process
// observes.
type Others struct {
	config Config
	fleet  string
	own    string
	peers  map[string]*peer
	names  []string // sorted, so that nothing depends on the order of a map

	// Silence counts from since at the earliest: since then our own renewals have been observed in
	// time.
	since     Moment
	observing bool
	// out are our renewals that have not been observed, due is when the next one is due.
	out []attempt
	due Moment
	// unseen is since when our renewals have been acknowledged and none of them has been observed in
	// time; zero while they are observed, or fail.
	unseen Moment

	// news are the replicas whose Lease has changed since News was last called; lives is true if a
	// holder has.
	news  []string
	lives bool
}

// NewOthers returns the knowledge of a session that has just started: no session Lease was observed
// yet.
func NewOthers(c Config, id Identification) *Others {
	return &Others{config: c, fleet: id.Fleet, own: id.Session, peers: map[string]*peer{}}
}

// Renewing records that our own renewal is about to be sent: it has to be observed through the
// watch.
func (o *Others) Renewing(now Moment, renewTime time.Time) {
	o.out = append(o.out, attempt{renewTime: renewTime, sent: now})
	if len(o.out) > mostAttempts {
		o.out = slices.Delete(o.out, 1, 2) // the oldest shows for how long no renewal was observed
	}
	o.due = now.Add(o.config.RenewEvery)
}

// Advance notices that a renewal of ours was not observed in time, or was not sent in time. Until
// one is observed, the silence of others does not count: its cause may be the API server, or this
// process.
func (o *Others) Advance(now Moment) {
	oldest := o.due
	if len(o.out) > 0 {
		oldest = o.out[0].sent
	}
	if o.observing && now.Reached(oldest.Add(o.config.ComeBack)) {
		o.observing = false
	}
}

// Interrupt records that our own renewal has failed. The cause may have let renewals of others
// fail, too.
func (o *Others) Interrupt() { o.observing, o.unseen = false, Moment{} }

// Acknowledged records that our own renewal has succeeded.
func (o *Others) Acknowledged(now Moment) {
	if o.unseen.IsZero() {
		o.unseen = now
	}
}

// Unseen returns since when our own renewals have succeeded without being observed through the
// watch in time; the zero Moment while they are observed, and while they fail.
func (o *Others) Unseen() Moment { return o.unseen }

// Observe records a version of a session Lease, and reports whether anything but the time of its
// renewal has changed. watched is true if the version came through the watch.
func (o *Others) Observe(now Moment, l *coordinationv1.Lease, watched bool) (changed bool) {
	replica, ok := ReplicaOfLease(o.fleet, l.Name)
	if !ok {
		return false
	}
	if watched && Holder(l) == o.own && l.Spec.RenewTime != nil {
		o.comeBack(now, l.Spec.RenewTime.Time)
	}
	p := o.peer(replica)
	switch {
	case p.lease == nil:
		p.seen, p.replaced = now, p.replaced || !p.gone.IsZero()
	case p.gone.IsZero() && p.lease.ResourceVersion == l.ResourceVersion, IsOlder(l, p.lease):
		return false
	case p.lease.UID != l.UID:
		p.seen, p.replaced = now, true
	}
	lives := p.lease == nil || !p.gone.IsZero() || p.lease.UID != l.UID || Holder(p.lease) != Holder(l) ||
		p.lease.Annotations[v1alpha1.AnnotationCreated] != l.Annotations[v1alpha1.AnnotationCreated]
	changed = lives || !maps.Equal(p.lease.Annotations, l.Annotations)
	p.lease, p.changed, p.gone = l, now, Moment{}
	if changed {
		p.Peer = readPeer(replica, l)
		o.news, o.lives = append(o.news, replica), o.lives || lives
	}
	return changed
}

// News returns the replicas whose session Lease has changed since the last call, except for the
// time of its renewal, and reports whether the results of Death and Judge may differ for any
// session. A replica may be named more than once.
func (o *Others) News() (replicas []string, lives bool) {
	replicas, lives = o.news, o.lives
	o.news, o.lives = nil, false
	return replicas, lives
}

// Correct records what a live read has shown, also if it is older than what we know: then etcd has
// been restored. If the answer only came late, the watch will correct it.
func (o *Others) Correct(now Moment, l *coordinationv1.Lease) (changed bool) {
	if replica, ok := ReplicaOfLease(o.fleet, l.Name); ok {
		if p := o.peers[replica]; p != nil && p.lease != nil && IsOlder(l, p.lease) {
			p.lease, p.replaced = nil, true
		}
	}
	return o.Observe(now, l, false)
}

// peer returns what is recorded of a replica.
func (o *Others) peer(replica string) *peer {
	p, known := o.peers[replica]
	if !known {
		p = &peer{}
		o.peers[replica] = p
		at, _ := slices.BinarySearch(o.names, replica)
		o.names = slices.Insert(o.names, at, replica)
	}
	return p
}

// comeBack records that our renewal has been observed through the watch. The watch shows changes in
// their order, so everything that happened before that renewal has been observed. Earlier renewals
// will not be observed any more.
func (o *Others) comeBack(now Moment, renewTime time.Time) {
	returned := slices.IndexFunc(o.out, func(a attempt) bool { return a.renewTime.After(renewTime) })
	if returned < 0 {
		returned = len(o.out)
	}
	if returned == 0 {
		return
	}
	inTime := !now.Reached(o.out[returned-1].sent.Add(o.config.ComeBack))
	o.out = slices.Delete(o.out, 0, returned)
	if inTime {
		o.unseen = Moment{}
	}
	if inTime && !o.observing {
		o.observing, o.since = true, now
	}
}

// Missed records that the watch or a live read has shown no session Lease of a replica.
func (o *Others) Missed(now Moment, replica string) (changed bool) {
	p := o.peer(replica)
	if !p.gone.IsZero() {
		return false
	}
	p.gone, p.Peer = now, Peer{Replica: replica}
	o.news, o.lives = append(o.news, replica), true
	return true
}

// Known returns how many replicas are remembered.
func (o *Others) Known() int { return len(o.names) }

// forgetAfter is for how many take-over times a session Lease has to be missing before its replica
// is forgotten.
const forgetAfter = 40

// Forget removes replicas whose session Lease has long been missing, unless keep reports that a
// Lease names a session of theirs. Afterwards they are as unknown as to a session that has just
// started.
func (o *Others) Forget(now Moment, keep func(replica string) bool) {
	o.names = slices.DeleteFunc(o.names, func(replica string) bool {
		p := o.peers[replica]
		drop := !p.gone.IsZero() && now.Since(p.gone) >= forgetAfter*o.config.TakeOver && !keep(replica)
		if drop {
			delete(o.peers, replica)
		}
		return drop
	})
}

// Peers returns what is known of all replicas that have a session Lease, sorted by name.
func (o *Others) Peers() []Peer {
	peers := make([]Peer, 0, len(o.names))
	for _, name := range o.names {
		if p := o.peers[name]; p.gone.IsZero() {
			peers = append(peers, p.Peer)
		}
	}
	return peers
}

// Peer returns what is known of one replica; the zero Peer if it has no session Lease.
func (o *Others) Peer(replica string) Peer {
	if p, known := o.peers[replica]; known && p.gone.IsZero() {
		return p.Peer
	}
	return Peer{}
}

// Silence returns for how long nothing has been observed of a replica's session Lease while it
// would have been, and, if that is long enough for its session to be declared dead, the Lease. It
// does not count while our own renewals are not observed.
func (o *Others) Silence(now Moment, replica string) (silence time.Duration, dead *coordinationv1.Lease) {
	p, known := o.peers[replica]
	if !known || !p.gone.IsZero() || !o.observing {
		return 0, nil
	}
	silence = now.Since(p.changed)
	if p.changed.Monotonic < o.since.Monotonic {
		silence = now.Since(o.since)
	}
	if silence < o.config.TakeOver || p.Session == "" || p.Session == o.own {
		return silence, nil
	}
	return silence, p.lease
}

// Warm reports whether our own renewals have been observed for the time of a take-over, so that
// silence would have been noticed.
func (o *Others) Warm(now Moment) bool {
	return o.observing && now.Since(o.since) >= o.config.TakeOver
}

// Observing reports whether our own renewals are observed through the watch, and since when.
func (o *Others) Observing() (since Moment, ok bool) { return o.since, o.observing }

// Judge returns what a live read of a session's Lease proves, if it began after the session was
// observed to hold something; l is nil if there was none. A session that has lost its Lease never
// regains it, so another holder, or none, proves that it is dead. If the Lease is gone, or is not
// the one that the session held, the session may not have noticed: it is Expiring, because it
// cannot renew any more, and dead when the time of a take-over has passed since the read.
func (o *Others) Judge(now Moment, session string, l *coordinationv1.Lease) Judgement {
	replica, ok := ReplicaOf(session)
	switch {
	case !ok:
		return Dead // no session can have this name
	case l == nil:
		o.Missed(now, replica)
		return Expiring
	case Holder(l) == session:
		o.Observe(now, l, false)
		return Alive
	}
	o.Observe(now, l, false)
	p := o.peers[replica]
	if p == nil || p.lease == nil || p.lease.UID != l.UID || p.isNew() && now.Since(p.seen) < o.config.TakeOver {
		return Expiring
	}
	return Dead
}

// Judgement states what a live read of a session Lease proves.
type Judgement string

// The judgements.
const (
	// Alive: the session may still hold its Lease.
	Alive Judgement = "alive"
	// Expiring: it cannot renew any more, but its fence may not have passed.
	Expiring Judgement = "expiring"
	// Dead: it may not act any more, and never will.
	Dead Judgement = "dead"
)

// Death returns from when on a session looks dead by what has been observed; ok is false while it
// holds its Lease. This is a reason for a live read, and no proof: see Judge.
func (o *Others) Death(now Moment, session string) (at Moment, ok bool) {
	replica, ok := ReplicaOf(session)
	if !ok {
		return now, true
	}
	p, known := o.peers[replica]
	switch {
	case !known:
		o.Missed(now, replica)
		return now.Add(o.config.TakeOver), true
	case !p.gone.IsZero():
		return p.gone.Add(o.config.TakeOver), true
	case p.Session == session:
		return Moment{}, false
	case p.isNew():
		return p.seen.Add(o.config.TakeOver), true
	}
	return p.changed, true
}

// isNew reports whether the Lease may not be the one that an earlier session of the replica has
// held.
func (p *peer) isNew() bool {
	return p.replaced || p.lease.Annotations[v1alpha1.AnnotationCreated] != ""
}

func readPeer(replica string, l *coordinationv1.Lease) Peer {
	p := Peer{
		Replica: replica, Session: Holder(l), Capacity: 1,
		Leaving:   l.Annotations[v1alpha1.AnnotationLeaving] != "",
		Weights:   l.Annotations[v1alpha1.AnnotationWeights],
		Confirmed: l.Annotations[v1alpha1.AnnotationConfirmed],
		Counts:    l.Annotations[v1alpha1.AnnotationCounts],
		Accounts:  l.Annotations[v1alpha1.AnnotationAccounts],
	}
	p.Fitness, _ = ParseFitness(l.Annotations[v1alpha1.AnnotationFitness]) // an invalid report counts as unfit
	if capacity, err := strconv.ParseFloat(l.Annotations[v1alpha1.AnnotationCapacity], 64); err == nil && capacity > 0 {
		p.Capacity = capacity
	}
	return p
}
