package main

import (
	"context"
	"os"
	"runtime/debug"
	"runtime/metrics"
	"time"

	"k8s.io/utils/clock"
)

// A replica that creates or replaces many machines allocates much, and has a small heap: with Go's
// default it collects garbage several times a second, which takes a quarter of its CPU time. So
// while it works its heap may grow by workHeap beyond that default, and each collection serves for
// more work. At rest the default applies, and the memory is returned.
const (
	// workHeap is in bytes. The memory that docs/operations/sizing.md has for a replica without
	// machines includes it.
	workHeap = 32 << 20
	// heapEvery is how often the heap is looked at.
	heapEvery = time.Second
	// A replica works from busyCollections within heapEvery on, until it has collected nothing for
	// restAfter. Go collects every two minutes in any case.
	busyCollections = 2
	restAfter       = 10 * time.Second
	// defaultPercent is Go's default for the growth of the heap between two collections. mostPercent
	// bounds it, because what lives can double before the heap is looked at again.
	defaultPercent, mostPercent = 100, 400
)

// heap contains measurements of Go's heap.
type heap struct {
	collections uint64 // so far
	live        uint64 // bytes that the last one has left, with stacks and global variables: Go's percentages are of these
}

// pace decides by how many percent the heap may grow.
type pace struct {
	percent     int
	collections uint64    // when it was last looked at
	last        time.Time // of the last collection that was noticed
}

// next returns the percentage from now on.
func (p *pace) next(is heap, now time.Time) int {
	collected := is.collections - p.collections
	p.collections = is.collections
	if collected > 0 {
		p.last = now
	}
	works := p.percent > defaultPercent && now.Sub(p.last) < restAfter || collected >= busyCollections
	if !works {
		p.percent = defaultPercent
		return p.percent
	}
	want := min(defaultPercent+int(100*workHeap/max(is.live, 1<<20)), mostPercent)
	if want < p.percent || want > p.percent+p.percent/4 { // each change stops the process for some µs
		p.percent = want
	}
	return p.percent
}

// paceCollections has the heap grow more while the process works, until ctx ends. It does nothing
// where the environment variable GOGC says how much the heap may grow. GOMEMLIMIT applies in any
// case.
func paceCollections(ctx context.Context, clock clock.WithTicker) {
	if os.Getenv("GOGC") != "" {
		return
	}
	ticker := clock.NewTicker(heapEvery)
	defer ticker.Stop()
	p := &pace{percent: defaultPercent, collections: measureHeap().collections}
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-ticker.C():
			if was := p.percent; p.next(measureHeap(), now) != was {
				debug.SetGCPercent(p.percent)
			}
		}
	}
}

// measureHeap reads what Go has measured.
func measureHeap() heap {
	s := []metrics.Sample{
		{Name: "/gc/cycles/total:gc-cycles"}, {Name: "/gc/heap/live:bytes"}, {Name: "/gc/scan/stack:bytes"}, {Name: "/gc/scan/globals:bytes"},
	}
	metrics.Read(s)
	return heap{collections: s[0].Value.Uint64(), live: s[1].Value.Uint64() + s[2].Value.Uint64() + s[3].Value.Uint64()}
}
