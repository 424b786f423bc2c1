package harness

import (
	"context"
	"net/http"
	"time"
)

// SlotsView is what a process says of itself and its slots at /debug/slots, as far as it is looked at here.
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
	// Open says that all objects of the slot are known.
	Open bool
	// Stopping says that the slot is about to be handed over: no pass and no driver call begins.
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

// Slots asks a process for its slots.
func (l *Lab) Slots(ctx context.Context, process string) (SlotsView, error) {
	var view SlotsView
	err := l.DebugSlots(ctx, process, &view)
	return view, err
}

// DebugSlots reads what a replica's process says of its slots into out, as JSON.
func (l *Lab) DebugSlots(ctx context.Context, process string, out any) error {
	return send(ctx, http.MethodGet, l.Endpoint(process)+"/debug/slots", nil, out)
}

// answersWithin is how long a process may take to say what it holds. One that is paused never does.
const answersWithin = time.Second

// EverySlots asks all processes of the fleet, doubles among them, and leaves out those that do not answer.
func (l *Lab) EverySlots(ctx context.Context) (views []SlotsView, err error) {
	pods, err := l.Pods(ctx)
	if err != nil {
		return nil, err
	}
	for _, pod := range pods {
		asked, cancel := context.WithTimeout(ctx, answersWithin)
		view, err := l.Slots(asked, pod.Name)
		cancel()
		if err == nil {
			views = append(views, view)
		}
	}
	return views, nil
}
