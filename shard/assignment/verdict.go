package assignment

import "time"

func (b *board) verdict() Verdict {
	var v Verdict
	for s := range b.slots {
		slot := &b.slots[s]
		if slot.why == "" {
			continue
		}
		to := b.replicas[slot.at].Name
		v.Moves = append(v.Moves, Move{Slot: s, From: slot.Assigned, To: to, Why: slot.why, Home: b.homeNote(slot, to)})
	}
	busiest := 0.0
	for r, replica := range b.replicas {
		v.Shares = append(v.Shares, Share{Replica: replica.Name, Slots: replica.slots, Weight: replica.weight})
		busiest = max(busiest, b.load(r))
	}
	if b.mean > 0 {
		v.Imbalance = busiest / b.mean
	}
	v.Again = b.again(len(v.Moves) > 0)
	return v
}

// homeNote returns a slot's home after its move: the first home is kept if the slot moves again
// before it has returned.
func (b *board) homeNote(s *slot, to string) string {
	home := b.homeOf(s)
	if home == "" && s.why == Leaving {
		home = s.Assigned
	}
	if home == to {
		return ""
	}
	return home
}

// again returns the first future instant at which one of the times that the assignment depends on
// is reached.
func (b *board) again(moved bool) time.Duration {
	first := time.Duration(0)
	at := func(t time.Duration) {
		if t > b.now && (first == 0 || t < first) {
			first = t
		}
	}
	for s := range b.slots {
		slot := &b.slots[s]
		if slot.UnownedSince != 0 {
			at(slot.UnownedSince + b.config.NotAcquiredAfter)
		}
		if slot.Home != "" {
			at(slot.HomeUntil)
		}
		if slot.Moved != 0 {
			at(slot.Moved + b.config.Window)
			at(slot.Moved + b.config.RestFor)
		}
		for _, until := range slot.Passed {
			at(until)
		}
		if len(slot.unreached) > 0 {
			at(slot.StaysUntil)
		}
	}
	if moved {
		at(b.now + b.config.Window)
	}
	return first
}
