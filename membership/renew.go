package membership

import (
	coordinationv1 "k8s.io/api/coordination/v1"
)

// wrote applies the answer to a create or an update.
func (o *Own) wrote(now Moment, r Reply) {
	switch r.Outcome {
	case Done:
		o.acknowledge(now, r.Lease, r.Sent)
		if o.emptying {
			o.phase, o.empty = ended, true
		}
	case Unanswered:
		// It may have taken effect, or may do so later. While the session holds its Lease the next
		// renewal shows it: if it conflicts, the write has taken effect.
		o.try(r.Sent)
		o.mustRead = o.phase != holding
	case Conflict, Exists:
		// It may conflict with itself, if something in between has sent it twice.
		o.try(r.Sent)
		o.mustRead, o.due = true, Moment{}
	case NotFound:
		if o.phase == holding {
			o.loseMissing()
			return
		}
		o.mustRead, o.due = true, Moment{}
	case Refused:
		o.created = o.created && o.lease != nil
		o.mustRead = o.phase != holding
	}
}

// loseMissing ends a session whose Lease is gone. If it created the Lease again, another session
// might act already that has taken the deletion for the death of this one.
func (o *Own) loseMissing() {
	o.lose("session Lease %s: expected to find it, got NotFound; a session never creates its Lease twice", o.name)
}

// read applies the answer to a read.
func (o *Own) read(now Moment, r Reply) {
	switch r.Outcome {
	case Done:
		switch o.phase {
		case starting:
			o.readAtStart(now, r)
		case holding:
			o.readHolding(now, r.Lease)
		case releasing:
			o.readReleasing(now, r.Lease)
		case ended:
		}
	case NotFound:
		switch {
		case o.phase == releasing:
			o.phase = ended
		case o.phase == holding, o.created && now.Since(o.creating) >= o.config.TakeOver:
			o.loseMissing()
		case o.created: // it may still be in flight; read again when that is due
		default:
			o.lease, o.mustRead, o.due, o.timing = nil, false, Moment{}, timing{}
		}
	case Unanswered, Refused, Conflict, Exists:
		o.timing = timing{} // read again when that is due
	}
}

// readHolding continues only from a version that is ours. An older renewTime than the last that was
// acknowledged is not ours either: etcd has been restored, and since then other sessions may have
// done what the Lease does not show.
func (o *Own) readHolding(now Moment, l *coordinationv1.Lease) {
	if Holder(l) != o.id.Session || l.UID != o.lease.UID || l.Spec.RenewTime == nil {
		o.lose("session Lease %s: expected holder %s and UID %s, got %q and %s; another session has declared this one dead",
			o.name, o.id.Session, o.lease.UID, Holder(l), l.UID)
		return
	}
	if sent, ours := o.sentOf(l); ours {
		o.acknowledge(now, l, sent)
		o.due = Moment{}
		return
	}
	if !l.Spec.RenewTime.Time.Equal(o.acknowledged) {
		o.lose("session Lease %s: expected renewTime %v or that of an attempt without an answer, got %v; etcd may have been restored",
			o.name, o.acknowledged, l.Spec.RenewTime.Time)
		return
	}
	if l.ResourceVersion != o.lease.ResourceVersion {
		o.attempts = nil // another client has written to it, so they will conflict
	}
	o.keep(now, l)
	o.mustRead, o.due = false, Moment{}
}

// sentOf returns when the attempt that the Lease shows was sent.
func (o *Own) sentOf(l *coordinationv1.Lease) (sent Moment, ours bool) {
	if Holder(l) != o.id.Session || l.Spec.RenewTime == nil {
		return Moment{}, false
	}
	for _, a := range o.attempts {
		if t := l.Spec.RenewTime.Time; !t.Before(a.from) && !t.After(a.renewTime) {
			return a.sent, true
		}
	}
	return Moment{}, false
}

// readReleasing empties the Lease if it is still ours.
func (o *Own) readReleasing(now Moment, l *coordinationv1.Lease) {
	if Holder(l) == o.id.Session && l.UID == o.lease.UID {
		o.keep(now, l)
		o.mustRead, o.due = false, Moment{}
		return
	}
	o.phase, o.empty = ended, Holder(l) == ""
}
