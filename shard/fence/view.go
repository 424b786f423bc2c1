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
	// Opened is when the objects of the slot were complete, Served when the first pass after that had ended.
	Opened time.Time `json:"opened,omitzero"`
	Served time.Time `json:"served,omitzero"`
}

// Slot returns the state of a slot.
func (f *Fence) Slot(slot int) SlotView { return f.slots[slot].view(slot) }

// Leadership returns the state of the leadership, as slot -1.
func (f *Fence) Leadership() SlotView { return f.leadership.view(-1) }

func (h *ownershipState) view(slot int) SlotView {
	h.mu.Lock()
	defer h.mu.Unlock()
	return SlotView{
		Slot: slot, Epoch: h.epoch, Held: h.held, Open: h.isKnown(), Stopping: h.stopping, InFlight: h.inFlight,
		Opened: h.opened, Served: h.served,
	}
}
