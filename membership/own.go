package membership

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
)

// Identification is the identity of a session.
type Identification struct {
	// Fleet and Namespace identify the Lease.
	Fleet, Namespace string
	// Replica and Session are the names of both.
	Replica, Session string
	// PodUID is the UID of the session's pod, "" if it is not known.
	PodUID string
	// Exclusive is true if the process holds the exclusive file lock in the pod's own volume.
	Exclusive bool
	// Capacity is the capacity that the replica reports.
	Capacity float64
	// Record are further annotations of the Lease. They do not change while the session lives.
	Record map[string]string
}

// provenPod returns the UID of the pod whose lock the session holds, "" if it holds none. A session
// without the lock must not name the pod: that another one holds the lock proves nothing about it.
func (id Identification) provenPod() string {
	if !id.Exclusive {
		return ""
	}
	return id.PodUID
}

// Notes contain what a session reports to the others on its Lease, with the next renewal.
type Notes struct {
	// Leaving: the session hands its slots over and exits.
	Leaving bool
	// Confirmed, Fitness and Accounts are the values of the annotations of these names.
	Confirmed, Fitness, Accounts string
	// Counted: the counts of this session are on the Lease with its report. Those that a session of an
	// earlier version has left on the session Lease are removed then.
	Counted bool
}

type phase int

const (
	// starting: the session does not hold its Lease yet.
	starting phase = iota
	// holding: it has held it, and renews it.
	holding
	// releasing: it is being emptied, and the session starts nothing any more.
	releasing
	// ended: the session does not hold it any more, and never will.
	ended
)

// attempt is a write of our Lease that may have taken effect without an answer. It can stand for
// several: then from is the renewTime of the first of them, renewTime that of the last, and sent is
// when the first was sent.
type attempt struct {
	from, renewTime time.Time
	sent            Moment
}

// mostAttempts is how many attempts are recorded separately.
const mostAttempts = 64

// try records an attempt. If there are too many, the oldest two are merged. The result counts from
// the earlier send, so that the fence is never later than it may be: by then both have passed it.
func (o *Own) try(sent Moment) {
	o.attempts = append(o.attempts, attempt{from: o.renewTime, renewTime: o.renewTime, sent: sent})
	if len(o.attempts) > mostAttempts {
		o.attempts[0].renewTime = o.attempts[1].renewTime
		o.attempts = slices.Delete(o.attempts, 1, 2)
	}
}

// Own is the life of this session's Lease. At most one request for it is in flight.
type Own struct {
	config Config
	id     Identification
	name   string
	notes  Notes
	phase  phase
	// lease is the newest version that we have read or written.
	lease *coordinationv1.Lease
	// acknowledged is the renewTime of the last write of ours that we know to have taken effect.
	acknowledged time.Time
	fence        Moment
	attempts     []attempt
	lastRenew    time.Time
	// pending is the request that is not answered yet, renewTime is the time that it writes, and
	// emptying is true if it empties the Lease.
	pending   Verb
	renewTime time.Time
	emptying  bool
	mustRead  bool
	due       Moment
	// seen is when this Lease, by its UID, was first read.
	seen Moment
	// created is true if a create of ours may have taken effect, or may do so later; creating is when
	// it was sent.
	created  bool
	creating Moment
	timing   timing
	// releaseUntil is when an attempt to empty the Lease is not repeated any more.
	releaseUntil Moment
	empty        bool
	reason       string
}

// NewOwn returns the Lease of a session that has not started.
func NewOwn(c Config, id Identification) *Own {
	return &Own{config: c, id: id, name: SessionLeaseName(id.Fleet, id.Replica), mustRead: true}
}

// Fence returns the moment after which the session may start nothing, unless a renewal extends it.
// ok is false while the session does not hold its Lease, and from the moment at which it begins to
// empty it.
func (o *Own) Fence() (fence Moment, ok bool) { return o.fence, o.phase == holding }

// Lost returns why the session has permanently lost its Lease; "" if it has not.
func (o *Own) Lost() string { return o.reason }

// Left reports whether the session has given up its Lease, and whether the Lease is known to be
// empty.
func (o *Own) Left() (empty, ok bool) { return o.empty, o.phase == ended && o.reason == "" }

// Note sets what the next renewal reports. Leaving and the fitness are reported at once.
func (o *Own) Note(n Notes) {
	if n.Leaving != o.notes.Leaving || n.Fitness != o.notes.Fitness {
		o.due = Moment{}
	}
	o.notes = n
}

// Release empties the Lease; from now on the session starts nothing. It has no effect before the
// Lease was held.
func (o *Own) Release(now Moment) {
	switch o.phase {
	case starting:
		o.phase = ended
	case holding:
		o.phase, o.due, o.releaseUntil = releasing, Moment{}, now.Add(o.config.Fence)
	case releasing, ended:
	}
}

// WakeAt returns when to call Next again; the zero Moment while an answer is awaited, and at the
// end.
func (o *Own) WakeAt() Moment {
	if o.pending != "" || o.phase == ended {
		return Moment{}
	}
	return o.due
}

// IsDue reports whether Next has a request to send.
func (o *Own) IsDue(now Moment) bool {
	return o.phase != ended && o.pending == "" && now.Reached(o.due)
}

// Next returns the request that is due, if one is. The caller sets its ID.
func (o *Own) Next(now Moment) (Request, bool) {
	if o.phase == releasing && now.Reached(o.releaseUntil) {
		o.phase = ended
	}
	if !o.IsDue(now) {
		return Request{}, false
	}
	request := Request{Verb: Get, Name: o.name, Need: NeedNothing}
	if !o.mustRead {
		request.Verb, request.Lease = Update, o.compose(now)
		if o.lease == nil {
			request.Verb, o.created, o.creating = Create, true, now
		}
	}
	o.pending, o.emptying, o.due = request.Verb, o.phase == releasing, now.Add(o.config.RenewEvery)
	return request, true
}

// compose returns the next version of the Lease. Its renewTime identifies our attempts, so no two
// are the same.
func (o *Own) compose(now Moment) *coordinationv1.Lease {
	o.renewTime = now.Cluster().Truncate(time.Microsecond)
	if !o.renewTime.After(o.lastRenew) {
		o.renewTime = o.lastRenew.Add(time.Microsecond)
	}
	o.lastRenew = o.renewTime
	l := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: o.name, Namespace: o.id.Namespace}}
	if o.lease != nil {
		l = o.lease.DeepCopy()
		Untrack(l)
	} else {
		Annotate(l, v1alpha1.AnnotationCreated, o.id.Session)
	}
	Label(l, o.id.Fleet, v1alpha1.LeaseOfSession)
	renew := metav1.NewMicroTime(o.renewTime)
	l.Spec.RenewTime = &renew
	if o.phase == releasing {
		l.Spec.HolderIdentity = nil
		Annotate(l, v1alpha1.AnnotationConfirmed, "")
		Annotate(l, v1alpha1.AnnotationFitness, "")
		Annotate(l, v1alpha1.AnnotationAccounts, "")
		// It still records that the session has left, which gives its slots their home.
		return l
	}
	if o.phase == starting {
		holder, transitions, seconds := o.id.Session, NextTransitions(o.lease), int32(o.config.TakeOver.Seconds())
		l.Spec.HolderIdentity, l.Spec.LeaseTransitions, l.Spec.LeaseDurationSeconds, l.Spec.AcquireTime = &holder, &transitions, &seconds, &renew
	}
	if o.lease != nil && now.Since(o.seen) >= o.config.TakeOver {
		Annotate(l, v1alpha1.AnnotationCreated, "") // every holder of another Lease of this name has passed its fence
	}
	leaving := ""
	if o.notes.Leaving {
		leaving = "true"
	}
	Annotate(l, v1alpha1.AnnotationLeaving, leaving)
	Annotate(l, v1alpha1.AnnotationWeights, "") // of an earlier version
	Annotate(l, v1alpha1.AnnotationConfirmed, o.notes.Confirmed)
	Annotate(l, v1alpha1.AnnotationFitness, o.notes.Fitness)
	Annotate(l, v1alpha1.AnnotationAccounts, o.notes.Accounts)
	if o.notes.Counted {
		Annotate(l, v1alpha1.AnnotationCounts, "")
	}
	Annotate(l, v1alpha1.AnnotationPodUID, o.id.provenPod())
	Annotate(l, v1alpha1.AnnotationCapacity, strconv.FormatFloat(o.id.Capacity, 'g', -1, 64))
	for key, value := range o.id.Record {
		Annotate(l, key, value)
	}
	return l
}

// NoteUnserved records the last time without a session of the fleet, from the next request on. It
// is called before the first one.
func (o *Own) NoteUnserved(gap Gap) {
	o.id.Record = maps.Clone(o.id.Record)
	if o.id.Record == nil {
		o.id.Record = map[string]string{}
	}
	o.id.Record[v1alpha1.AnnotationUnserved] = gap.String()
}

// RenewTime returns the renewTime that the request of the last Next writes.
func (o *Own) RenewTime() time.Time { return o.renewTime }

// Replied applies the answer to the request of the last Next.
func (o *Own) Replied(now Moment, r Reply) {
	pending := o.pending
	o.pending = ""
	if o.phase == ended || pending == "" {
		return
	}
	if pending == Get {
		o.read(now, r)
		return
	}
	o.wrote(now, r)
}

// lose ends the session.
func (o *Own) lose(format string, args ...any) {
	o.phase, o.reason = ended, fmt.Sprintf(format, args...)
}

// acknowledge records that a write of ours, sent at a moment, has taken effect. Others that are not
// answered carried the resourceVersion that it has replaced, and cannot take effect any more.
func (o *Own) acknowledge(now Moment, l *coordinationv1.Lease, sent Moment) {
	if o.phase == starting {
		o.phase = holding
	}
	o.keep(now, l)
	o.acknowledged, o.attempts, o.mustRead = l.Spec.RenewTime.Time, nil, false
	if fence := sent.Add(o.config.Fence); o.fence.Monotonic < fence.Monotonic {
		o.fence = fence
	}
}

// keep records the newest version of the Lease.
func (o *Own) keep(now Moment, l *coordinationv1.Lease) {
	if o.lease == nil || o.lease.UID != l.UID {
		o.seen = now
	}
	o.lease = l
}
