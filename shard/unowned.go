package shard

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"k8s.io/klog/v2"

	member "github.com/machine-controller-fleet/machine-controller-fleet/membership"
	"github.com/machine-controller-fleet/machine-controller-fleet/shard/protocol"
)

// longUnowned is for how long nobody may hold a slot before that is told. Hand-overs, take-overs and a quarantine are over
// by then, if all goes well.
const longUnowned = 30 * time.Second

// outages are slots, or sessions, that something is wrong with, as long as this session leads.
type outages[K cmp.Ordered] map[K]outage

type outage struct {
	since    member.Moment
	reported bool
}

// lateOf returns, sorted, what something has been wrong with for longer than a duration, each once in an outage; wrong has what
// something is wrong with now.
func lateOf[K cmp.Ordered, V any](o outages[K], now member.Moment, after time.Duration, wrong map[K]V) (late []K) {
	maps.DeleteFunc(o, func(key K, _ outage) bool { _, is := wrong[key]; return !is })
	for _, key := range slices.Sorted(maps.Keys(wrong)) {
		out, known := o[key]
		switch {
		case !known:
			o[key] = outage{since: now}
		case !out.reported && now.Since(out.since) > after:
			o[key] = outage{since: out.since, reported: true}
			late = append(late, key)
		}
	}
	return late
}

// unreported has keys returned by lateOf once more, unless nothing is wrong with them by now.
func (o outages[K]) unreported(keys []K) {
	for _, key := range keys {
		if out, known := o[key]; known {
			o[key] = outage{since: out.since}
		}
	}
}

// unownedAmong returns the slots that nobody holds.
func unownedAmong(slots []protocol.SlotFacts) map[int]bool {
	unowned := map[int]bool{}
	for _, s := range slots {
		if !s.Owned {
			unowned[s.Slot] = true
		}
	}
	return unowned
}

// reportUnowned has it told, under the leadership, which slots nobody has held for long.
func (r *Replica) reportUnowned(ctx context.Context, now member.Moment, slots []protocol.SlotFacts) {
	if r.cfg.Unowned == nil {
		return
	}
	owned, done, leads := r.cfg.Fence.Lead(ctx)
	if !leads {
		clear(r.outages) // whoever leads next sees for himself
		return
	}
	late := lateOf(r.outages, now, longUnowned, unownedAmong(slots))
	if len(late) == 0 {
		done()
		return
	}
	r.sent.Go(func() {
		defer done()
		klog.FromContext(owned).Info("Nobody holds slots, and nothing is done about their objects", "slots", ranges(late), "for", longUnowned)
		if err := r.cfg.Unowned(owned, late); err != nil {
			klog.FromContext(owned).Error(err, "Not all who should know of slots that nobody holds were told, it is tried again", "slots", ranges(late))
			r.mail.put(letter{do: func() { r.outages.unreported(late) }})
		}
	})
}
