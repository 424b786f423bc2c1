package protocol

import (
	"strconv"
	"strings"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	member "github.com/machine-controller-fleet/machine-controller-fleet/membership"
)

// reporting writes what this session reports about its slots and machines, to a separate Lease when
// it has changed: all replicas receive each renewal, which therefore does not repeat it. It proves
// nothing and gives no permission: a report that is missing, late or false leads to a worse
// assignment, and to machines that are not replaced.
type reporting struct {
	*shared

	activation *activation
	table      *table
	// weights are those of the slots that the session holds, counts its report about its machines.
	weights map[int]int64
	counts  *string
	// at is when a report was last sent; zero: none was.
	at member.Moment
	// pending is true while a request is not answered. The Lease has to be read if mustRead is true.
	// Before retry no request is sent.
	pending, mustRead bool
	retry             member.Moment
}

// weigh records what is to be reported.
func (r *reporting) weigh(e Weighed) { r.weights, r.counts = e.Weights, e.Counts }

// write sends a report that has changed, at most once in Config.WeighEvery. It is called with each
// renewal.
func (r *reporting) write(now member.Moment) {
	_, holds := r.own.Fence() // it does not while it empties its Lease
	if r.pending || !holds || r.activation.activity != active || !now.Reached(r.retry) {
		return
	}
	name := member.ReportLeaseName(r.settings.Fleet, r.settings.Replica)
	if r.mustRead {
		r.ask(member.Request{Verb: member.Get, Name: name, Need: member.NeedNothing})
		return
	}
	last := r.table.reportOf(r.settings.Replica)
	text := r.text()
	isOurs := member.Holder(last.lease) == r.settings.Session
	if !isOurs && text == "" && r.counts == nil {
		return // nothing is known yet, and what an earlier session has reported is still used
	}
	if isOurs && last.weights == text && (r.counts == nil || *r.counts == last.counts) ||
		!r.at.IsZero() && !now.Reached(r.at.Add(r.settings.Config.WeighEvery)) {
		return
	}
	request := member.Request{Verb: member.Update, Name: name, Lease: r.compose(now, last.lease, text), Need: member.NeedFence}
	if last.lease == nil {
		request.Verb = member.Create
	}
	r.at = now
	r.ask(request)
}

func (r *reporting) ask(request member.Request) {
	r.pending = true
	r.send(request, question{about: aboutReport})
}

// text returns the weights of the slots that the session holds.
func (r *reporting) text() string {
	var weights []string
	for _, s := range r.slots {
		if weight, known := r.weights[s.number]; known && s.phase != free {
			weights = append(weights, strconv.Itoa(s.number)+":"+strconv.FormatInt(weight, 10))
		}
	}
	return strings.Join(weights, ",")
}

// compose returns the next version of the Lease. Without new counts the last ones of the replica
// stay.
func (r *reporting) compose(now member.Moment, last *coordinationv1.Lease, weights string) *coordinationv1.Lease {
	l := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{
		Name: member.ReportLeaseName(r.settings.Fleet, r.settings.Replica), Namespace: r.settings.Namespace,
	}}
	if last != nil {
		l = last.DeepCopy()
		member.Untrack(l)
	}
	member.Label(l, r.settings.Fleet, v1alpha1.LeaseOfReport)
	holder, written := r.settings.Session, metav1.NewMicroTime(r.timestamp(now))
	l.Spec.HolderIdentity, l.Spec.RenewTime = &holder, &written
	member.Annotate(l, v1alpha1.AnnotationWeights, weights)
	if r.counts != nil {
		member.Annotate(l, v1alpha1.AnnotationCounts, *r.counts)
	}
	return l
}

// handle applies the answer to a request.
func (r *reporting) handle(now member.Moment, reply member.Reply) {
	r.pending = false
	switch reply.Outcome {
	case member.Done:
		r.mustRead = false
		r.table.observeReport(r.settings.Replica, reply.Lease)
	case member.NotFound:
		r.mustRead, r.at = false, member.Moment{}
		r.table.observeReport(r.settings.Replica, nil)
	case member.Conflict, member.Exists, member.Unanswered:
		r.mustRead, r.at = true, member.Moment{} // what was due still is
	case member.Refused:
		r.retry = now.Add(r.settings.Config.WeighEvery)
	}
}

// counted reports whether the counts of this session are on its report, so that those that an
// earlier version has written to the session Lease are not needed any more.
func (r *reporting) counted() bool {
	last := r.table.reportOf(r.settings.Replica)
	return member.Holder(last.lease) == r.settings.Session && last.counts != ""
}
