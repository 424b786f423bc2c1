package main

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/harness"
)

// every returns moments, one after each step, from one time to another.
func every(step, from, to time.Duration) (at []time.Duration) {
	for t := from + step; t <= to; t += step {
		at = append(at, t)
	}
	return at
}

func TestReplaced(t *testing.T) {
	for name, tc := range map[string]struct {
		ran, gone, want []time.Duration
	}{
		"nothing":               {},
		"no old one is gone":    {ran: []time.Duration{1, 2}},
		"one after the other":   {ran: []time.Duration{1, 3}, gone: []time.Duration{2, 4}, want: []time.Duration{2, 4}},
		"old ones first":        {ran: []time.Duration{5, 6}, gone: []time.Duration{1, 2}, want: []time.Duration{5, 6}},
		"in any order":          {ran: []time.Duration{4, 1}, gone: []time.Duration{3, 2}, want: []time.Duration{2, 4}},
		"one is not there yet":  {ran: []time.Duration{1, 2, 9}, gone: []time.Duration{3, 4}, want: []time.Duration{3, 4}},
		"one has not gone, yet": {ran: []time.Duration{1}, gone: []time.Duration{3, 4}, want: []time.Duration{3}},
	} {
		t.Run(name, func(t *testing.T) {
			r := &rolling{ran: tc.ran, gone: tc.gone}
			if got := r.replaced(); !slices.Equal(got, tc.want) {
				t.Errorf("replaced at %v, want %v", got, tc.want)
			}
			last := time.Duration(0)
			if len(tc.want) > 0 {
				last = tc.want[len(tc.want)-1]
			}
			if got := r.took(); got != last {
				t.Errorf("it took %s, want %s", got, last)
			}
		})
	}
}

func TestPace(t *testing.T) {
	const s = time.Second
	for name, tc := range map[string]struct {
		finished   []time.Duration
		pause      time.Duration
		minutes    int // how many there are
		first      int // what was finished in the first one
		unevenness float64
	}{
		"nothing":                        {nil, 0, 0, 0, math.Inf(1)},
		"within a minute":                {every(s, 0, 30*s), s, 1, 30, 1},
		"a slow start":                   {every(s, 20*s, 30*s), 21 * s, 1, 10, 1},
		"as fast all the time":           {every(s, 0, 180*s), s, 121, 59, 60. / 59}, // the end of the first minute is the next one's
		"a pause":                        {slices.Concat(every(s, 0, 90*s), every(s, 120*s, 240*s)), 31 * s, 181, 59, 60. / 30},
		"half as fast in the end":        {slices.Concat(every(s, 0, 300*s), every(2*s, 300*s, 420*s)), 2 * s, 361, 59, 60. / 30},
		"nothing for more than a minute": {slices.Concat(every(s, 0, 30*s), every(s, 100*s, 130*s)), 71 * s, 71, 30, math.Inf(1)},
	} {
		t.Run(name, func(t *testing.T) {
			if got := longestPause(tc.finished); got != tc.pause {
				t.Errorf("the longest pause is %s, want %s", got, tc.pause)
			}
			counts := perMinute(tc.finished)
			if len(counts) != tc.minutes || len(counts) > 0 && counts[0] != tc.first {
				t.Errorf("minutes %v, want %d of them and %d in the first", counts, tc.minutes, tc.first)
			}
			if got := unevenness(counts); got != tc.unevenness {
				t.Errorf("the median minute has %v times the slowest, want %v", got, tc.unevenness)
			}
		})
	}
}

// The slowest hundredth of the fleet's own writes counts, and no other writes.
func TestWriteTimes(t *testing.T) {
	var requests []harness.Request
	for i := range 200 {
		requests = append(requests, harness.Request{
			User: "fleet-1", Verb: "patch", Resource: "machines", Took: time.Duration(i+1) * time.Millisecond,
		})
	}
	for _, other := range []harness.Request{
		{User: "fleet-1", Verb: "list", Resource: "machines"},
		{User: "fleet-1", Verb: "watch", Resource: "machines"},
		{User: "fleet-1", Verb: "update", Resource: "leases"},
		{User: "fleet-1", Verb: "create", Resource: "events"},
		{User: "admin", Verb: "patch", Resource: "machinedeployments"},
	} {
		other.Took = time.Hour
		requests = append(requests, other)
	}
	took := writeTimes(requests)
	if got, want := percentile(took, 99), 198*time.Millisecond; len(took) != 200 || got != want {
		t.Errorf("of %d writes 99 %% took up to %s, want 200 and %s", len(took), got, want)
	}
}
