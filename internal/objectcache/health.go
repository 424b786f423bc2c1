package objectcache

import (
	"context"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/clock"

	"github.com/machine-controller-fleet/machine-controller-fleet/internal/apianswers"
)

// Health records since when watches of one kind of objects, each of which has delivered before, do
// not deliver any more. How long the first list of one may take is decided by who waits for it.
// Create one with NewHealth, and give it to a Source. It is safe for concurrent use; a nil Health
// records nothing.
type Health struct {
	clock clock.PassiveClock

	mu        sync.Mutex
	delivered map[*ListerWatcher]bool
	broken    map[*ListerWatcher]outage
	took      time.Duration // by the last list that was answered
	recovered func(after time.Duration)
}

// outage is a watch that does not deliver.
type outage struct {
	since time.Time
	err   error
}

// NewHealth returns a Health of which nothing is broken.
func NewHealth(c clock.PassiveClock) *Health {
	return &Health{clock: c, delivered: map[*ListerWatcher]bool{}, broken: map[*ListerWatcher]outage{}}
}

// OnRecovered calls f each time that a watch delivers again, with the time for which it did not.
// Call it before the first watch begins.
func (h *Health) OnRecovered(f func(after time.Duration)) { h.recovered = f }

// Broken returns since when the watch does not deliver whose outage is the longest, and the last
// error of its list or watch, nil if there was none: the request hangs. ok is false if all deliver.
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

// Tolerance returns for how long a watch may not deliver before that is a fault: where lists are
// slow, for longer.
func (h *Health) Tolerance(after time.Duration) time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	return apianswers.Tolerance(after, h.took)
}

// list calls a list, and records how long it took if it was answered, or its error.
func (h *Health) list(ctx context.Context, l *ListerWatcher, options metav1.ListOptions) (runtime.Object, error) {
	if h == nil {
		return l.Source.List(ctx, options)
	}
	h.begin(l)
	begun := h.clock.Now()
	list, err := l.Source.List(apianswers.Unrecorded(ctx), options)
	if err != nil {
		h.failed(l, err)
		return nil, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.took = h.clock.Since(begun)
	return list, nil
}

// begin records that a list or a watch was requested: until a watch has begun again, nothing is
// delivered.
func (h *Health) begin(l *ListerWatcher) {
	if h == nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if _, known := h.broken[l]; !known && h.delivered[l] {
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

// delivers records that a watch delivers.
func (h *Health) delivers(l *ListerWatcher) {
	if h == nil {
		return
	}
	h.mu.Lock()
	was, isBack := h.broken[l]
	delete(h.broken, l)
	h.delivered[l] = true
	h.mu.Unlock()
	if isBack && h.recovered != nil {
		h.recovered(h.clock.Since(was.since))
	}
}

// forget records that listing and watching have ended.
func (h *Health) forget(l *ListerWatcher) {
	if h == nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.broken, l)
	delete(h.delivered, l)
}
