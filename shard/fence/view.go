package fence

import "time"

// SlotView is the state of a slot, or of the leadership, in the Fence, for /debug/slots.
type SlotView struct {
	Slot     int   `json:"slot"`
	Epoch    int64 `json:"epoch"`
	Held     bool  `json:"held"`
	Open     bool  `json:"open"`
	Stopping bool  `json:"stopping"`
	InFlight int   `json:"inFlight"`
	// Opened is when the objects of the slot were complete, Served when the first pass after that had
	// ended.
	Opened time.Time `json:"opened,omitzero"`
	Served time.Time `json:"served,omitzero"`
}

// Slot returns the state of a slot.
func (f *Fence) Slot(slot int) SlotView { return f.slots[slot].view(slot) }

// Share returns the part of all slots that the session holds, from 0 to 1. The shares of all
// sessions add up to 1 at most.
func (f *Fence) Share() float64 {
	held := 0
	for slot := range f.slots {
		if f.Slot(slot).Held {
			held++
		}
	}
	return float64(held) / float64(max(len(f.slots), 1))
}

// Leadership returns the state of the leadership, as slot -1.
func (f *Fence) Leadership() SlotView { return f.leadership.view(-1) }

func (s *ownershipState) view(slot int) SlotView {
	s.mu.Lock()
	defer s.mu.Unlock()
	return SlotView{
		Slot: slot, Epoch: s.epoch, Held: s.held, Open: s.isKnown(), Stopping: s.stopping, InFlight: s.inFlight,
		Opened: s.opened, Served: s.served,
	}
}
