package objectcache

import (
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// Health records since when lists and watches of one kind of objects do not deliver. Make one with NewHealth, and give it to a
// Source. It is safe for concurrent use; a nil Health records nothing.
type Health struct {
	clock clock.PassiveClock

	mu     sync.Mutex
	broken map[*ListerWatcher]outage
}

// outage is a watch that does not deliver.
type outage struct {
	since time.Time
	err   error
}

// NewHealth returns a Health of which nothing is broken.
func NewHealth(c clock.PassiveClock) *Health {
	return &Health{clock: c, broken: map[*ListerWatcher]outage{}}
}

// Broken returns since when the watch does not deliver whose outage is the longest, and the last error of its list or
// watch, nil if there was none: the request hangs. ok is false if all deliver.
func (h *Health) Broken() (since time.Time, err error, ok bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, o := range h.broken {
		if !ok || o.since.Before(since) {
			since, err, ok = o.since, o.err, true
		}
	}
	return since, err, ok
}

// begin records that a list or a watch was requested: until a watch has begun, nothing is delivered.
func (h *Health) begin(l *ListerWatcher) {
	if h == nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if _, known := h.broken[l]; !known {
		h.broken[l] = outage{since: h.clock.Now()}
	}
}

// failed records the error of a list or a watch.
func (h *Health) failed(l *ListerWatcher, err error) {
	if h == nil || err == nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if o, known := h.broken[l]; known {
		o.err = err
		h.broken[l] = o
	}
}

// forget records that a watch delivers, or that listing and watching have ended.
func (h *Health) forget(l *ListerWatcher) {
	if h == nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.broken, l)
}
