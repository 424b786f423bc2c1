package main

import (
	"runtime"
	"testing"
	"time"
)

// While a replica works, its heap may grow by workHeap beyond Go's default; at rest it may not.
func TestHeapGrowsMoreWhileAReplicaWorks(t *testing.T) {
	const small, large = 8 << 20, 64 << 20
	p := &pace{percent: defaultPercent}
	now, collections := time.Unix(0, 0), uint64(0)
	for _, step := range []struct {
		what        string
		after       time.Duration
		collections uint64
		live        uint64
		want        int
	}{
		{"a collection", time.Second, 1, small, 100},
		{"work begins", time.Second, 2, small, 400},
		{"nothing is collected for a time", 9 * time.Second, 0, small, 400},
		{"one collection continues it", time.Second, 1, small, 400},
		{"the heap is larger", time.Second, 1, large, 150},
		{"the heap is a little smaller", time.Second, 1, large * 7 / 8, 150},
		{"the heap is half as large", time.Second, 1, large / 2, 200},
		{"rest", 10 * time.Second, 0, large, 100},
		{"a collection at rest", time.Second, 1, large, 100},
		{"what was not measured yet", time.Second, 2, 0, 400},
	} {
		now = now.Add(step.after)
		collections += step.collections
		if got := p.next(heap{collections, step.live}, now); got != step.want {
			t.Errorf("%s: got %d %%, want %d", step.what, got, step.want)
		}
	}
}

// Metrics whose names Go does not know have no value.
func TestTheHeapIsMeasured(t *testing.T) {
	before := measureHeap()
	runtime.GC()
	if after := measureHeap(); after.collections <= before.collections || after.live == 0 {
		t.Errorf("got %+v after %+v", after, before)
	}
}
