package shard

import (
	"encoding/json"
	"net/http"
	"time"

	member "github.com/machine-controller-fleet/machine-controller-fleet/membership"
	"github.com/machine-controller-fleet/machine-controller-fleet/shard/protocol"
)

// View is what /debug/slots shows: what the session knows, and what its Fence makes of it.
type View struct {
	protocol.Facts

	// Now is what the fence is to be compared with.
	Now member.Moment `json:"now"`
	// Here are the slots that this session has anything to do with.
	Here []SlotView `json:"here"`
	// Unopened are the slots that are held and not open, with the kind of objects that is missing.
	Unopened map[int]string `json:"unopened,omitempty"`
	// Grants are the slots of each grant, if whoever has them tells.
	Grants [][]int `json:"grants,omitempty"`
	// Leadership is what is in flight for the leader.
	Leadership SlotView `json:"leadership"`
}

// SlotView is a slot as the Fence has it.
type SlotView struct {
	Slot     int   `json:"slot"`
	Epoch    int64 `json:"epoch"`
	Held     bool  `json:"held"`
	Open     bool  `json:"open"`
	Stopping bool  `json:"stopping"`
	InFlight int   `json:"inFlight"`
	// Opened is when the objects of the slot were all known, Served when the first pass after that had ended.
	Opened time.Time `json:"opened,omitzero"`
	Served time.Time `json:"served,omitzero"`
}

// ServeSlots answers /debug/slots.
func (r *Replica) ServeSlots(w http.ResponseWriter, request *http.Request) {
	var view View
	err := r.inLoop(request.Context(), func() error {
		view = View{Facts: r.machine.Facts(r.cfg.Time.Moment()), Now: r.cfg.Time.Moment(), Leadership: r.cfg.Fence.leadership.view(protocol.Everything)}
		view.Unopened = r.waiting()
		for slot, h := range r.cfg.Fence.slots {
			if v := h.view(slot); v.Held || v.InFlight > 0 {
				view.Here = append(view.Here, v)
			}
		}
		return nil
	})
	if reporter, ok := r.cfg.Grants.(interface{ Grants() [][]int }); ok {
		view.Grants = reporter.Grants()
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	writeJSON(w, view)
}

func (h *holding) view(slot int) SlotView {
	h.mu.Lock()
	defer h.mu.Unlock()
	return SlotView{
		Slot: slot, Epoch: h.epoch, Held: h.held, Open: h.isKnown(), Stopping: h.stopping, InFlight: h.inFlight,
		Opened: h.opened, Served: h.served,
	}
}

func writeJSON(w http.ResponseWriter, value any) {
	w.Header().Set("Content-Type", "application/json")
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	_ = encoder.Encode(value) // whoever asked is gone
}
