package session

import (
	"maps"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"

	member "github.com/machine-controller-fleet/machine-controller-fleet/membership"
	"github.com/machine-controller-fleet/machine-controller-fleet/shard/session/protocol"
)

// holders records, from the Leases that this session observes, which session holds each slot, and
// since when no live session holds it. It does so for all slots, so that the next holder of a slot
// knows when it had none. No decision about slots depends on it: it serves metrics and traces, by
// times of this process, and the deadlines of machines, by those that the Leases show.
type holders struct {
	settings protocol.Settings
	signs    map[string]sign   // the last sign of life, by session
	sessions map[string]string // the session that each replica's Lease shows
	slots    []holder          // by number
	counted  float64           // slot-seconds without a live holder that were not taken yet
	observed observation
}

// sign is the last sign of life of a session: a renewal of its Lease.
type sign struct {
	renewed time.Time // the latest that the session wrote; the zero Time if its Lease was never observed
	at      member.Moment
}

// holder is the holder of a slot.
type holder struct {
	lease   *coordinationv1.Lease // nil until one was observed
	session string                // "" for none
	since   time.Time             // since when, as the Lease shows it
	gap     gap
	until   member.Moment // until when the time without a live holder was counted
	new     bool          // no session has ever held it
}

// gap is a time without a live holder: the present one, or else the one before the present holder.
type gap struct {
	since member.Moment
	of    string // the session that held the slot before it; "" if it is unknown
	died  bool   // that session did not release the slot
}

// observation is whether the silence of other sessions proves that they are dead.
type observation int

const (
	observationPending  observation = iota // not yet: what is without a holder now is counted when it does
	observationReliable                    // it does
	observationFailed                      // not any more: what is missed is not counted
)

func newHolders(s protocol.Settings, now member.Moment) *holders {
	h := &holders{settings: s, signs: map[string]sign{}, sessions: map[string]string{}, slots: make([]holder, s.Slots)}
	for slot := range h.slots {
		h.slots[slot].gap.since, h.slots[slot].new = now, true
	}
	return h
}

// seen records a version of a Lease. One of a session is a sign of life if it renews the Lease. One
// of a slot may end a time in which the slot had no live holder: seen returns both.
func (h *holders) seen(lease *coordinationv1.Lease, at member.Moment) (slot int, unserved member.Gap) {
	if replica, is := member.ReplicaOfLease(h.settings.Fleet, lease.Name); is && lease.Spec.RenewTime != nil {
		session, renewed := member.Holder(lease), lease.Spec.RenewTime.Time
		last, known := h.signs[session]
		if known && renewed.Equal(last.renewed) {
			return 0, member.Gap{}
		}
		if !known {
			at = written(lease, at)
		}
		if renewed.Before(last.renewed) { // an older version, or the time was in the future
			renewed = last.renewed
		}
		h.signs[session], h.sessions[replica] = sign{renewed, at}, session
	}
	slot, is := member.SlotOfLease(h.settings.Fleet, lease.Name, h.settings.Slots)
	if !is {
		return 0, member.Gap{}
	}
	return slot, h.holds(slot, lease, member.Holder(lease), at)
}

// gone records that a Lease was deleted.
func (h *holders) gone(lease *coordinationv1.Lease, at member.Moment) {
	if slot, is := member.SlotOfLease(h.settings.Fleet, lease.Name, h.settings.Slots); is {
		h.holds(slot, lease, "", at)
	}
}

// oldest is the oldest time of a Lease that counts: another client may have written any.
const oldest = 30 * 24 * time.Hour

// written returns when a Lease that is observed for the first time was written.
func written(lease *coordinationv1.Lease, at member.Moment) member.Moment {
	if lease.Spec.RenewTime == nil {
		return at
	}
	return at.Add(-min(max(0, at.Cluster().Sub(lease.Spec.RenewTime.Time)), oldest))
}

// freed returns since when a slot that is observed for the first time has no holder. Another client
// may have removed the holder without a time: sessions have lived until the last sign of life of
// any.
func (h *holders) freed(lease *coordinationv1.Lease, at member.Moment) member.Moment {
	since := written(lease, at)
	for _, last := range h.signs {
		if last.at.Since(since) > 0 {
			since = last.at
		}
	}
	return since
}

// holds records the holder of a slot, and returns the time that it has ended. A live session
// releases its slots before another one acquires them.
func (h *holders) holds(slot int, lease *coordinationv1.Lease, session string, at member.Moment) (unserved member.Gap) {
	is := &h.slots[slot]
	known := is.lease != nil
	if known && member.IsOlder(lease, is.lease) {
		return member.Gap{}
	}
	is.lease = lease
	if !known || session != is.session {
		unserved = h.unserved(is, lease, session, at.Cluster())
	}
	if !known {
		is.new = session == "" && member.Transitions(lease) == 0
	}
	switch {
	case !known && session == "":
		is.gap.since = h.freed(lease, at)
	case known && session != is.session:
		h.count(slot, at)
		if since, dead := h.dead(is.session, at, h.settings.Config.TakeOver); dead || is.session != "" && session != "" {
			is.gap = gap{since: since, of: is.session, died: true}
		} else if is.session != "" {
			is.gap = gap{since: at, of: is.session}
		}
	}
	is.session = session
	if is.new && session != "" {
		is.new, is.gap.since = false, at
	}
	return unserved
}

// unserved returns the time in which a slot had no live holder before a session acquired it, as the
// Leases show it: none if that was short, or is not known. session is "" when the slot is released.
func (h *holders) unserved(is *holder, lease *coordinationv1.Lease, session string, now time.Time) member.Gap {
	from := is.since
	if is.session != "" {
		from = h.signs[is.session].renewed
	}
	is.since = from // where another client has written the Lease, its time may be older, or missing
	if renewed := lease.Spec.RenewTime; renewed != nil && renewed.After(from) {
		is.since = renewed.Time
	}
	if session == "" || from.IsZero() || is.since.Sub(from) < member.ShortestGap ||
		!is.since.Before(now.Add(member.ShortestGap)) { // one that ends in the future would keep machines from failing until then
		return member.Gap{}
	}
	return member.Gap{From: from, To: is.since}
}

// dead returns the last sign of life of a session, and whether it is dead: another session of its
// replica has begun, or it was silent for some time. This session lives.
func (h *holders) dead(session string, now member.Moment, silence time.Duration) (since member.Moment, dead bool) {
	if session == "" || session == h.settings.Session {
		return now, false
	}
	last, known := h.signs[session]
	if !known {
		last.at = now // it is observed from now on
		h.signs[session] = last
	}
	replica, _ := member.ReplicaOf(session)
	current := h.sessions[replica]
	return last.at, current != "" && current != session || now.Since(last.at) >= silence
}

// unheld returns since when a slot has no live holder, and whether it has none. silence is after
// what time without a sign of life a session counts as dead.
func (h *holders) unheld(slot int, now member.Moment, silence time.Duration) (since member.Moment, is bool) {
	if of := &h.slots[slot]; of.session == "" {
		return of.gap.since, true
	}
	return h.dead(h.slots[slot].session, now, silence)
}

// count counts the time in which a slot had no live holder, from its first holder on. The silence
// of a session counts when others may take its slots over: until then it may be back, and counts
// what it has missed itself.
func (h *holders) count(slot int, now member.Moment) {
	is := &h.slots[slot]
	since, unheld := h.unheld(slot, now, h.settings.Config.TakeOver)
	if !unheld || is.new {
		return
	}
	if !is.until.IsZero() && since.Since(is.until) < 0 {
		since = is.until
	}
	h.counted += max(0, now.Since(since)).Seconds()
	is.until = now
}

// take returns the slot-seconds without a live holder since it was last called. observing reports
// whether the silence of other sessions proves anything: after a time in which it did not, silence
// counts from its end.
func (h *holders) take(now member.Moment, observing bool) (seconds float64) {
	switch {
	case !observing && h.observed == observationPending:
		return 0
	case !observing:
		h.observed = observationFailed
		return 0
	case h.observed == observationFailed:
		h.counted = 0
		for session, last := range h.signs {
			h.signs[session] = sign{last.renewed, now}
		}
		for slot := range h.slots {
			h.slots[slot].until = now
		}
	}
	h.observed = observationReliable
	for slot := range h.slots {
		h.count(slot, now)
	}
	seconds, h.counted = h.counted, 0
	return seconds
}

// unowned returns how many slots have no holder, or one that has been silent for longer than a
// session may work without a sign of life.
func (h *holders) unowned(now member.Moment) (slots int) {
	for slot := range h.slots {
		if _, is := h.unheld(slot, now, h.settings.Config.Fence); is && (h.observed == observationReliable || h.slots[slot].session == "") {
			slots++
		}
	}
	return slots
}

// prune drops sessions that hold nothing and have been silent for long.
func (h *holders) prune(now member.Moment) {
	holding := map[string]bool{}
	for _, slot := range h.slots {
		holding[slot.session] = true
	}
	maps.DeleteFunc(h.signs, func(session string, last sign) bool {
		return !holding[session] && now.Since(last.at) > h.settings.Config.TakeOver
	})
	maps.DeleteFunc(h.sessions, func(_, session string) bool {
		_, known := h.signs[session]
		return !known
	})
}
