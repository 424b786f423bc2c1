package main

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/simulated/cloudapi"
)

// TestOnlyBusy: a hand-over counts only if calls of the cloud were in flight for all machines of
// its slot when it was requested.
func TestOnlyBusy(t *testing.T) {
	requested := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	const slot = 7
	call := func(i int) cloudapi.Call {
		return cloudapi.Call{
			Caller:    fmt.Sprintf("machine-controller-fleet/fleet-0 (session=fleet-0_aaaaa; slot=%d; epoch=1)", slot),
			Operation: cloudapi.OpDeleteInstance, Machine: fmt.Sprintf("md-0-%d", i),
			Start: requested.Add(-longestCall / 2), End: requested.Add(longestCall / 2),
		}
	}
	for name, test := range map[string]struct {
		change func(c *cloudapi.Call) // the last of ten
		counts bool
	}{
		"all at the cloud":       {func(*cloudapi.Call) {}, true},
		"one creates a VM":       {func(c *cloudapi.Call) { c.Operation = cloudapi.OpCreateInstance }, true},
		"one begins just then":   {func(c *cloudapi.Call) { c.Start = requested }, true},
		"one begins later":       {func(c *cloudapi.Call) { c.Start = requested.Add(time.Millisecond) }, false},
		"one has ended":          {func(c *cloudapi.Call) { c.End = requested }, false},
		"one only reads":         {func(c *cloudapi.Call) { c.Operation = cloudapi.OpGetInstance }, false},
		"one is requested again": {func(c *cloudapi.Call) { c.Machine = "md-0-0" }, false},
		"one of another slot": {func(c *cloudapi.Call) {
			c.Caller = "machine-controller-fleet/fleet-0 (session=fleet-0_aaaaa; slot=8; epoch=1)"
		}, false},
		"one of no replica": {func(c *cloudapi.Call) { c.Caller = "curl" }, false},
	} {
		calls := make([]cloudapi.Call, machines)
		for i := range calls {
			calls[i] = call(i)
		}
		test.change(&calls[machines-1])
		m := moves{created: []move{{slot: slot, assignedAt: requested, took: time.Second}}}
		if err := m.onlyBusy(calls); err != nil || len(m.created)+m.idle != 1 || (len(m.created) == 1) != test.counts {
			t.Errorf("%s: %d count, %d are excluded (%v), want it to count: %t", name, len(m.created), m.idle, err, test.counts)
		}
	}
	m := moves{created: slices.Repeat([]move{{slot: slot, assignedAt: requested}}, mostIdle+1)}
	if err := m.onlyBusy(nil); err == nil {
		t.Error("want an error if no call of the cloud was in flight, got none")
	}
}
