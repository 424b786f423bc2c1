package membership

import (
	"k8s.io/apimachinery/pkg/types"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
)

// timing is for how long consecutive live reads have shown the same version of a Lease.
type timing struct {
	uid             types.UID
	resourceVersion string
	since, last     Moment
}

// readAtStart acquires the Lease if it has no holder, if its holder has been silent for long
// enough, or if its holder's process is known to be gone; otherwise it continues to read.
func (o *Own) readAtStart(now Moment, r Reply) {
	l := r.Lease
	if sent, ours := o.sentOf(l); ours {
		o.acknowledge(now, l, sent)
		return
	}
	if o.lease != nil && (o.lease.UID != l.UID || o.lease.ResourceVersion != l.ResourceVersion) {
		o.attempts = nil // they name another version, and have no effect any more
	}
	o.keep(now, l)
	switch {
	case Holder(l) == o.id.Session:
		o.lose("session Lease %s: expected another holder or none, got this session, %s, which has not acquired it; "+
			"an identity must not be used twice", o.name, o.id.Session)
	case Holder(l) == "" || o.provesEnd(l.Annotations) || o.silent(now, r):
		o.mustRead, o.due = false, Moment{}
	}
}

// provesEnd reports whether the holder's process is gone: it has held the lock in the pod's volume,
// and now this process does. The kernel releases the lock of a process only when the process is
// gone.
func (o *Own) provesEnd(annotations map[string]string) bool {
	pod := o.id.provenPod()
	return pod != "" && annotations[v1alpha1.AnnotationPodUID] == pod
}

// silent reports whether reads without a gap have shown the same version for the time of a
// take-over. A gap is an answer that took too long or did not come: while the API server was
// unavailable, the holder could not renew either.
func (o *Own) silent(now Moment, r Reply) bool {
	t := &o.timing
	gap := t.last.IsZero() || now.Reached(r.Sent.Add(o.config.RequestTimeout)) ||
		now.Reached(t.last.Add(o.config.RenewEvery+o.config.RequestTimeout))
	if gap || t.uid != r.Lease.UID || t.resourceVersion != r.Lease.ResourceVersion {
		*t = timing{uid: r.Lease.UID, resourceVersion: r.Lease.ResourceVersion, since: now}
	}
	t.last = now
	return now.Since(t.since) >= o.config.TakeOver
}
