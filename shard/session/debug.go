package session

import (
	"encoding/json"
	"net/http"

	member "github.com/machine-controller-fleet/machine-controller-fleet/membership"
	"github.com/machine-controller-fleet/machine-controller-fleet/shard/fence"
	"github.com/machine-controller-fleet/machine-controller-fleet/shard/session/protocol"
)

// View is the answer of /debug/slots: the state of the session, and of the slots in its Fence.
type View struct {
	protocol.Facts

	// Now is the time to compare the fence with.
	Now member.Moment `json:"now"`
	// Here are the slots that this session holds, or under which work is in flight.
	Here []fence.SlotView `json:"here"`
	// Unopened are the slots that are held and not open, with the kind of objects that is missing.
	Unopened map[int]string `json:"unopened,omitempty"`
	// Grants are the slots of each grant, if Config.Grants reports them.
	Grants [][]int `json:"grants,omitempty"`
	// Leadership is the work in flight under the leadership.
	Leadership fence.SlotView `json:"leadership"`
}

// ServeSlots answers /debug/slots.
func (r *Replica) ServeSlots(w http.ResponseWriter, request *http.Request) {
	var view View
	err := r.inLoop(request.Context(), func() error {
		view = View{Facts: r.machine.Facts(r.cfg.Time.Moment()), Now: r.cfg.Time.Moment(), Leadership: r.cfg.Fence.Leadership()}
		view.Unopened = r.waiting()
		for slot := range r.cfg.Settings.Slots {
			if v := r.cfg.Fence.Slot(slot); v.Held || v.InFlight > 0 {
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
	w.Header().Set("Content-Type", "application/json")
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	_ = encoder.Encode(view) // an error means that the client has disconnected
}
