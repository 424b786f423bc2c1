package session

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"k8s.io/klog/v2"

	member "github.com/machine-controller-fleet/machine-controller-fleet/membership"
	"github.com/machine-controller-fleet/machine-controller-fleet/shard/session/protocol"
)

// longUnowned is for how long a slot may have no holder before the leader reports it. Hand-overs,
// take-overs and a quarantine normally take less.
const longUnowned = 30 * time.Second

// outages are the slots without a holder, or the unfit sessions, while this session leads.
type outages[K cmp.Ordered] map[K]outage

type outage struct {
	since    member.Moment
	reported bool
}

// lateOf returns, sorted, the keys that have been in wrong for longer than a duration, each once in
// an outage. wrong has the keys that are out of order now.
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

// unreported makes lateOf return keys once more, unless their outage has ended.
func (o outages[K]) unreported(keys []K) {
	for _, key := range keys {
		if out, known := o[key]; known {
			o[key] = outage{since: out.since}
		}
	}
}

// unownedAmong returns the slots without a holder.
func unownedAmong(slots []protocol.SlotFacts) map[int]bool {
	unowned := map[int]bool{}
	for _, s := range slots {
		if !s.Owned {
			unowned[s.Slot] = true
		}
	}
	return unowned
}

// reportLate reports, under the leadership, what has been wrong for longer than a duration: each
// once in an outage, and again when report returns false.
func reportLate[K cmp.Ordered, V any](
	ctx context.Context, r *Replica, o outages[K], now member.Moment, after time.Duration, wrong map[K]V,
	report func(ctx context.Context, late []K) bool,
) {
	owned, done, leads := r.cfg.Fence.Lead(ctx)
	if !leads {
		clear(o) // an outage is reported again the next time that this session leads
		return
	}
	late := lateOf(o, now, after, wrong)
	if len(late) == 0 {
		done()
		return
	}
	r.sent.Go(func() {
		defer done()
		if !report(owned, late) {
			r.mail.put(letter{do: func() { o.unreported(late) }})
		}
	})
}

// reportUnowned reports slots that have had no holder for long.
func (r *Replica) reportUnowned(ctx context.Context, slots []int) (reported bool) {
	klog.FromContext(ctx).Error(nil, "Slots have no holder; their objects are not reconciled", "slots", ranges(slots), "for", longUnowned)
	err := r.cfg.Unowned(ctx, slots)
	if err != nil {
		klog.FromContext(ctx).Error(err, "Failed to report unowned slots; retrying", "slots", ranges(slots))
	}
	return err == nil
}
