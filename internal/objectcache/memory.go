package objectcache

import (
	"fmt"
	"sync/atomic"
)

// Memory bounds how much several Sources have in memory together, of an API server that may send
// without end. NewMemory returns one.
type Memory struct {
	most          int64
	lists, events atomic.Int64
}

// NewMemory returns a Memory of that many bytes for lists, and as many for events after them.
func NewMemory(most int64) *Memory { return &Memory{most: most} }

// share counts the bytes that one Source has of a Memory, since its last list.
type share struct {
	of            *Memory
	lists, events atomic.Int64
}

// list counts bytes of a list. Errors: there is not so much.
func (s *share) list(bytes int64) error {
	s.lists.Add(bytes)
	if s.of.lists.Add(bytes) > s.of.most {
		return fmt.Errorf("expected objects that take together at most %d MiB of memory, got more", s.of.most>>20)
	}
	return nil
}

// event counts bytes of an event, and reports whether there is so much.
func (s *share) event(bytes int64) bool {
	s.events.Add(bytes)
	return s.of.events.Add(bytes) <= s.of.most
}

// release counts nothing any more.
func (s *share) release() {
	s.of.lists.Add(-s.lists.Swap(0))
	s.of.events.Add(-s.events.Swap(0))
}
