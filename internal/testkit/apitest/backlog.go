package apitest

import (
	"sync"

	"github.com/machine-controller-fleet/machine-controller-fleet/internal/objectcache"
)

// Backlog is what a view has not shown yet. It is safe for concurrent use.
type Backlog struct {
	mu      sync.Mutex
	waiting map[string][]func() // by resource, the oldest first
}

// ShowLate has a view show everything as it stands now, in the place of the view before, and what changes from now on when
// the Backlog is told to. The kinds are as late as they like, each for itself.
func (s *Server) ShowLate(view *objectcache.View) *Backlog {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.showIn(view)
	b := &Backlog{waiting: map[string][]func(){}}
	for resource, k := range s.kinds {
		at := k.show
		k.show = func(o object, gone bool) {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.waiting[resource] = append(b.waiting[resource], func() { at(o, gone) })
		}
		s.kinds[resource] = k
	}
	return b
}

// Len says how many changes of a resource are not shown yet.
func (b *Backlog) Len(resource string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.waiting[resource])
}

// Show has the view show the oldest changes of a resource, as many as that, or all there are.
func (b *Backlog) Show(resource string, changes int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	changes = min(changes, len(b.waiting[resource]))
	for _, show := range b.waiting[resource][:changes] {
		show()
	}
	b.waiting[resource] = b.waiting[resource][changes:]
}
