package harness

import (
	"context"
	"net/http"
	"time"
)

// SlotsView contains what a process reports about itself and its slots at /debug/slots, as far as
// tests use it.
type SlotsView struct {
	Session   string
	Suspended bool
	// Here are the slots that the session holds, or has something of in flight.
	Here []SlotView
}

// SlotView is one slot, as the process that holds it sees it.
type SlotView struct {
	Slot  int
	Epoch int64
	Held  bool
	// Open reports whether all objects of the slot are known.
	Open bool
	// Stopping reports whether the slot is about to be handed over: no pass and no driver call begins.
	Stopping bool
	// Opened is when they were, Served when the first pass after that had ended; zero: not yet.
	Opened, Served time.Time
}

// Holds returns the slot if the session holds it.
func (v SlotsView) Holds(slot int) (view SlotView, holds bool) {
	for _, here := range v.Here {
		if here.Slot == slot && here.Held {
			return here, true
		}
	}
	return SlotView{}, false
}

// Closed counts the slots of which the process does not know all objects yet.
func (v SlotsView) Closed() (n int) {
	for _, here := range v.Here {
		if !here.Open {
			n++
		}
	}
	return n
}

// Slots gets the slots of a process.
func (l *Lab) Slots(ctx context.Context, process string) (SlotsView, error) {
	var view SlotsView
	err := l.DebugSlots(ctx, process, &view)
	return view, err
}

// DebugSlots decodes what a replica's process reports about its slots into out, as JSON.
func (l *Lab) DebugSlots(ctx context.Context, process string, out any) error {
	return send(ctx, http.MethodGet, l.Endpoint(process)+"/debug/slots", nil, out)
}

// answersWithin bounds the time for the answer of a process. One that is paused never answers.
const answersWithin = time.Second

// EverySlots gets the slots of all processes of the fleet, including doubles, without those that do
// not answer.
func (l *Lab) EverySlots(ctx context.Context) (views []SlotsView, err error) {
	pods, err := l.Pods(ctx)
	if err != nil {
		return nil, err
	}
	for _, pod := range pods {
		bounded, cancel := context.WithTimeout(ctx, answersWithin)
		view, err := l.Slots(bounded, pod.Name)
		cancel()
		if err == nil {
			views = append(views, view)
		}
	}
	return views, nil
}
