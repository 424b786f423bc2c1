package shard

import (
	"context"
	"time"

	"k8s.io/klog/v2"

	member "github.com/machine-controller-fleet/machine-controller-fleet/membership/state"
	"github.com/machine-controller-fleet/machine-controller-fleet/shard/state"
)

// longUnowned is for how long nobody may hold a slot before that is told. Hand-overs, take-overs and a quarantine are over
// by then, if all goes well.
const longUnowned = 30 * time.Second

// outages are the slots that nobody holds, as long as this session leads.
type outages map[int]outage

type outage struct {
	since member.Moment
	told  bool
}

// late returns the slots that nobody has held for long, each once in an outage.
func (o outages) late(now member.Moment, slots []state.SlotFacts) (late []int) {
	for _, s := range slots {
		out, known := o[s.Slot]
		switch {
		case s.Owned:
			delete(o, s.Slot)
		case !known:
			o[s.Slot] = outage{since: now}
		case !out.told && now.Since(out.since) > longUnowned:
			o[s.Slot] = outage{since: out.since, told: true}
			late = append(late, s.Slot)
		}
	}
	return late
}

// untold has slots returned by late once more, unless somebody holds them by now.
func (o outages) untold(slots []int) {
	for _, slot := range slots {
		if out, known := o[slot]; known {
			o[slot] = outage{since: out.since}
		}
	}
}

// tellUnowned has it told, under the leadership, which slots nobody has held for long.
func (r *Replica) tellUnowned(ctx context.Context, now member.Moment, slots []state.SlotFacts) {
	if r.cfg.Unowned == nil {
		return
	}
	owned, done, leads := r.cfg.Fence.Lead(ctx)
	if !leads {
		clear(r.outages) // whoever leads next sees for himself
		return
	}
	late := r.outages.late(now, slots)
	if len(late) == 0 {
		done()
		return
	}
	r.sent.Go(func() {
		defer done()
		klog.FromContext(owned).Info("Nobody holds slots, and nothing is done about their objects", "slots", ranges(late), "for", longUnowned)
		if err := r.cfg.Unowned(owned, late); err != nil {
			klog.FromContext(owned).Error(err, "Not all who should know of slots that nobody holds were told, it is tried again", "slots", ranges(late))
			r.mail.put(letter{do: func() { r.outages.untold(late) }})
		}
	})
}
