package apitest

import (
	"sync"

	"github.com/machine-controller-fleet/machine-controller-fleet/internal/objectcache"
)

// Backlog has the changes that a view does not show yet. It is safe for concurrent use.
type Backlog struct {
	mu      sync.Mutex
	waiting map[string][]func() // by resource, the oldest first
}

// ShowLate makes a view show everything in its current version, in the place of the view before, and later changes when
// Show is called. The delays of the kinds are independent of each other.
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

// Len returns how many changes of a resource are not shown yet.
func (b *Backlog) Len(resource string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.waiting[resource])
}

// Show makes the view show the oldest n changes of a resource, or all if there are fewer.
func (b *Backlog) Show(resource string, changes int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	changes = min(changes, len(b.waiting[resource]))
	for _, show := range b.waiting[resource][:changes] {
		show()
	}
	b.waiting[resource] = b.waiting[resource][changes:]
}
