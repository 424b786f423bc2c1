package session

import (
	"slices"

	coordinationv1 "k8s.io/api/coordination/v1"

	member "github.com/machine-controller-fleet/machine-controller-fleet/membership"
	"github.com/machine-controller-fleet/machine-controller-fleet/membership/leases"
	"github.com/machine-controller-fleet/machine-controller-fleet/shard/session/protocol"
)

// observer posts what the watch shows as events.
type observer struct{ *Replica }

var _ leases.Observer = observer{}

// Listed posts a protocol.Listed.
func (o observer) Listed(leases []*coordinationv1.Lease) {
	o.note(leases...)
	leader := slices.IndexFunc(leases, o.isLeaderLease)
	if leader < 0 {
		o.showLeaderLease(nil)
	} else {
		o.showLeaderLease(leases[leader])
	}
	o.post(protocol.Listed{Leases: leases})
}

// Seen posts a protocol.Seen.
func (o observer) Seen(lease *coordinationv1.Lease) {
	o.note(lease)
	if o.isLeaderLease(lease) {
		o.showLeaderLease(lease)
	}
	o.post(protocol.Seen{Lease: lease})
}

// note updates what is known of holders, the measurement of arrivals, and of times without a
// holder, with Leases.
func (o observer) note(leases ...*coordinationv1.Lease) {
	at := o.cfg.Time.Moment()
	o.mail.put(letter{do: func() {
		for _, lease := range leases {
			slot, gap := o.holders.seen(lease, at)
			o.arrival.seen(lease, at)
			if !gap.IsZero() {
				o.cfg.UnservedSlot(slot, gap)
			}
		}
	}})
}

// Gone posts a protocol.Gone.
func (o observer) Gone(lease *coordinationv1.Lease) {
	if o.isLeaderLease(lease) {
		o.showLeaderLease(nil)
	}
	at := o.cfg.Time.Moment()
	o.mail.put(letter{do: func() { o.holders.gone(lease, at) }})
	o.post(protocol.Gone{Lease: lease})
}

func (o observer) showLeaderLease(lease *coordinationv1.Lease) {
	o.shown.Store(lease)
	o.cfg.LeaderLease(lease)
}

func (o observer) isLeaderLease(lease *coordinationv1.Lease) bool {
	return lease.Name == member.LeaderLeaseName(o.cfg.Settings.Fleet)
}
