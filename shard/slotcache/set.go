package slotcache

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

const (
	// gather is how long acquired slots are collected for one grant: long enough for slots that are
	// acquired together, and short compared with the half second that a hand-over may take.
	gather = 25 * time.Millisecond
	// mostOpening is how many grants are listed at a time. Slots that are acquired meanwhile become
	// one grant, when one of these is ready or they have waited for gatherMost: an API server that
	// answers late gets fewer lists, and these end earlier.
	mostOpening = 2
	gatherMost  = time.Second
	// mergeAfter is the time without acquired or lost slots before grants are merged, so that one
	// merge suffices for a rebalancing.
	mergeAfter = time.Second
	// mergeAllAfter is the time without acquired or lost slots before all grants become one, which
	// costs a list of all objects.
	mergeAllAfter = time.Minute
	// maxGrants is the maximum number of grants at a time, including a merged one that is not ready
	// yet.
	maxGrants = 8
	// mergeAt is the number of grants from which they are merged before that.
	mergeAt = 3
)

// Set is all grants of a replica. New returns one.
type Set struct {
	kinds []Kind
	clock clock.WithTicker
	kick  chan struct{}

	mu      sync.Mutex
	created int // number of grants so far
	grants  []*grant
	merged  *grant    // not ready yet; it is also in grants
	pending []call    // slots that have no grant yet
	since   time.Time // when the first of them was added
	changed time.Time // when slots were last acquired or lost
}

// New returns a Set without slots.
func New(c clock.WithTicker, kinds ...Kind) *Set {
	return &Set{kinds: kinds, clock: c, kick: make(chan struct{}, 1)}
}

// Add begins to watch the objects of slots, and returns at once. ready is called when all of them
// are cached, with those of the slots that were not dropped meanwhile, if any.
func (s *Set) Add(slots []int, ready func(slots []int)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.changed = s.clock.Now()
	if len(s.pending) == 0 {
		s.since = s.changed
	}
	s.pending = append(s.pending, call{slots: slices.Clone(slots), ready: ready})
	signal(s.kick)
}

// Open calls the handlers for the objects of the slots, and for their changes from now on.
func (s *Set) Open(slots []int) {
	for _, k := range s.kinds {
		k.open(slots)
	}
}

// Drop removes the objects of slots, before it returns.
func (s *Set) Drop(slots []int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.changed = s.clock.Now()
	for i := range s.pending {
		s.pending[i].slots = without(s.pending[i].slots, slots)
	}
	for _, g := range s.grants {
		for _, slot := range slots {
			delete(g.slots, slot)
		}
		for i := range g.calls {
			g.calls[i].slots = without(g.calls[i].slots, slots)
		}
	}
	for _, k := range s.kinds {
		k.drop(slots)
	}
	signal(s.kick)
}

func without(slots, lost []int) []int {
	return slices.DeleteFunc(slots, func(slot int) bool { return slices.Contains(lost, slot) })
}

// Grants returns the slots of each grant, for debugging.
func (s *Set) Grants() [][]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all [][]int
	for _, g := range s.grants {
		all = append(all, slices.Sorted(maps.Keys(g.slots)))
	}
	return all
}

// Unlisted returns, for each slot that is not ready yet, a kind of objects that has not been
// listed; "" while no list has begun.
func (s *Set) Unlisted() map[int]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	unlisted := map[int]string{}
	for _, c := range s.pending {
		for _, slot := range c.slots {
			unlisted[slot] = ""
		}
	}
	for _, g := range s.grants {
		if len(g.unsynced) == 0 || g == s.merged {
			continue
		}
		for slot := range g.slots {
			unlisted[slot] = g.unsynced[0]
		}
	}
	return unlisted
}

// signal wakes the receiver of kick, now or when it waits the next time.
func signal(kick chan<- struct{}) {
	select {
	case kick <- struct{}{}:
	default:
	}
}

// Run watches until ctx ends, and returns when all watches have ended.
func (s *Set) Run(ctx context.Context) {
	var running sync.WaitGroup
	defer running.Wait()
	for {
		due := s.clock.After(s.step(ctx, &running))
		select {
		case <-ctx.Done():
			return
		case <-s.kick:
		case <-due:
		}
	}
}

// step does what is due, and returns the time until the next step.
func (s *Set) step(ctx context.Context, running *sync.WaitGroup) (wake time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.clock.Now()
	wake = time.Hour
	s.endIdle()
	if room := maxGrants - 1; len(s.grants) < room || s.merged != nil && len(s.grants) <= room {
		if due := s.since.Add(s.gathers()).Sub(now); due > 0 {
			wake = due
		} else {
			s.start(ctx, s.newGrant(s.pending, nil), running)
			s.pending = nil
		}
	}
	if s.merged != nil {
		return wake // the next step follows when it is ready
	}
	quiet := now.Sub(s.changed)
	from := s.mergeable(quiet >= mergeAllAfter)
	switch {
	case len(from) > 0 && (quiet >= mergeAfter || len(s.grants) >= maxGrants-1):
		s.merged = s.newGrant(nil, from)
		s.start(ctx, s.merged, running)
	case len(from) > 0:
		wake = min(wake, mergeAfter-quiet)
	case quiet < mergeAllAfter:
		wake = min(wake, mergeAllAfter-quiet)
	}
	return wake
}

// gathers returns for how long acquired slots are collected now.
func (s *Set) gathers() time.Duration {
	opening := 0
	for _, g := range s.grants {
		if g != s.merged && len(g.unsynced) > 0 {
			opening++
		}
	}
	if len(s.pending) == 0 || opening < mostOpening {
		return gather
	}
	return gatherMost
}

// endIdle ends the grants whose slots were all lost; s.mu is held.
func (s *Set) endIdle() {
	s.grants = slices.DeleteFunc(s.grants, func(g *grant) bool {
		idle := len(g.slots) == 0
		if idle {
			g.stop()
			if g == s.merged {
				s.merged = nil
			}
		}
		return idle
	})
}

// mergeable returns the grants that should become one, if any: thin ones, and small ones if there
// are many grants; or all.
func (s *Set) mergeable(all bool) (from []*grant) {
	ready := slices.DeleteFunc(slices.Clone(s.grants), func(g *grant) bool { return len(g.unsynced) > 0 })
	slices.SortStableFunc(ready, func(a, b *grant) int { return cmp.Compare(len(a.slots), len(b.slots)) })
	small := 0 // number of the smallest that are merged; the next one is excluded while it is larger than all of them
	switch {
	case all && len(ready) > 1:
		small = len(ready)
	case len(ready) >= mergeAt:
		sum := 0
		for i, g := range ready {
			if i >= 2 && len(g.slots) > sum {
				break
			}
			sum += len(g.slots)
			small = i + 1
		}
	}
	for i, g := range ready {
		if i < small || g.isThin() {
			from = append(from, g)
		}
	}
	return from
}

func (s *Set) newGrant(calls []call, from []*grant) *grant {
	s.created++
	return newGrant(s.created, calls, from)
}

// start begins the watches of a grant, unless it has no slots; s.mu is held.
func (s *Set) start(ctx context.Context, g *grant, running *sync.WaitGroup) {
	if len(g.slots) == 0 {
		return
	}
	ctx, g.stop = context.WithCancel(ctx)
	for _, k := range s.kinds {
		g.unsynced = append(g.unsynced, k.called())
	}
	s.grants = append(s.grants, g)
	for _, k := range s.kinds {
		k.watch(ctx, g, func() { s.synced(g, k.called()) }, running)
	}
}

// synced records that one more kind of a grant was listed. After the last one, the slots are ready,
// or the grants that it takes over from end.
func (s *Set) synced(g *grant, kind string) {
	s.mu.Lock()
	g.unsynced = slices.DeleteFunc(g.unsynced, func(other string) bool { return other == kind })
	if len(g.unsynced) > 0 {
		s.mu.Unlock()
		return
	}
	calls := g.calls
	g.calls = nil
	if g == s.merged {
		s.merged = nil
		s.grants = slices.DeleteFunc(s.grants, func(old *grant) bool {
			if g.replaces(old) {
				old.stop()
			}
			return g.replaces(old)
		})
	}
	signal(s.kick)
	s.mu.Unlock()
	for _, c := range calls {
		c.ready(c.slots)
	}
}
