package main

import (
	"testing"
	"time"

	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/harness"
)

// TestLastServed: a slot with machines is served when its first pass has ended, and not when its
// objects are known.
func TestLastServed(t *testing.T) {
	start := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	at := func(seconds int) time.Time { return start.Add(time.Duration(seconds) * time.Second) }
	const used, unused = 3, 4
	fleet := func(change func(v *harness.SlotsView)) []harness.SlotsView {
		view := harness.SlotsView{Session: "fleet-0_aaaaa"}
		for slot := range slots {
			view.Here = append(view.Here, harness.SlotView{Slot: slot, Held: true, Open: true, Opened: at(2)})
		}
		view.Here[used].Served = at(5)
		change(&view)
		return []harness.SlotsView{view}
	}
	for name, test := range map[string]struct {
		change func(v *harness.SlotsView)
		want   int // seconds; -1: not yet
	}{
		"the first pass has ended":            {func(*harness.SlotsView) {}, 5},
		"it has not":                          {func(v *harness.SlotsView) { v.Here[used].Served = time.Time{} }, -1},
		"a slot without machines is open":     {func(v *harness.SlotsView) { v.Here[unused].Opened = at(7) }, 7},
		"a slot without machines is not":      {func(v *harness.SlotsView) { v.Here[unused].Open = false }, -1},
		"a slot is missing":                   {func(v *harness.SlotsView) { v.Here = v.Here[1:] }, -1},
		"it was served before, all the time":  {func(v *harness.SlotsView) { v.Here[used].Opened, v.Here[used].Served = at(-9), at(-8) }, 2},
		"a pass in a slot without machines":   {func(v *harness.SlotsView) { v.Here[unused].Served = at(9) }, 5},
		"it is not open any more, and served": {func(v *harness.SlotsView) { v.Here[used].Open = false }, -1},
	} {
		last, err := lastServed(fleet(test.change), map[int]bool{used: true}, start)
		switch {
		case test.want < 0 && err == nil:
			t.Errorf("%s: served at %s, want it not to be", name, last)
		case test.want >= 0 && (err != nil || !last.Equal(at(test.want))):
			t.Errorf("%s: served after %s (%v), want %d s", name, last.Sub(start), err, test.want)
		}
	}
}
