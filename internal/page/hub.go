package page

import (
	"context"
	"encoding/json"
	"sync"
	"time"

	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/machine-controller-fleet/machine-controller-fleet/internal/page/model"
)

const (
	// computeEach is the shortest time between two states, and computeAtLeast the longest one while
	// nothing changes: ages of what is silent do.
	computeEach, computeAtLeast = time.Second, 5 * time.Second
	// share is the part of the time for which states may be computed: a larger fleet is shown less
	// often.
	share = 20
	// watchAfter is for how long is watched after the last viewer has gone: one that loads the page
	// again finds it complete.
	watchAfter = time.Minute
	// mostViewers is how many streams are open at a time, and mostOfUser how many of one user.
	mostViewers, mostOfUser = 32, 8
)

// Source reads the objects that the page shows. Run lists and watches until ctx ends; Changes
// returns a number that differs after a change; Read returns what is known.
type Source interface {
	Run(ctx context.Context)
	Changes() uint64
	Read() model.Input
}

// frame is one state, and the way to the next one.
type frame struct {
	number uint64
	state  model.Encoded
	// change is the encoded message from the frame before to this one.
	change []byte
	// next is closed when there is a later frame.
	next chan struct{}

	once  sync.Once
	whole []byte
}

// full returns the encoded message with the whole state, which all viewers that begin share.
func (f *frame) full() []byte {
	f.once.Do(func() { f.whole, _ = json.Marshal(f.state.Whole()) }) // texts and numbers can be encoded
	return f.whole
}

// since returns the message for a viewer that has an earlier frame.
func (f *frame) since(before *frame) []byte {
	switch {
	case before == nil:
		return f.full()
	case before.number == f.number-1:
		return f.change
	}
	message, _ := json.Marshal(model.Change(before.state, f.state))
	return message
}

// hub computes states while there are viewers.
type hub struct {
	source Source
	clock  clock.WithTicker
	wanted chan struct{} // has a value when a viewer has come

	mu      sync.Mutex
	viewers int
	of      map[string]int // of each user, the streams
	left    time.Time      // when the last viewer has gone
	latest  *frame         // nil while nothing is watched
	first   chan struct{}
}

func newHub(source Source, c clock.WithTicker) *hub {
	return &hub{source: source, clock: c, wanted: make(chan struct{}, 1), of: map[string]int{}, first: make(chan struct{})}
}

// enter counts a stream of a user, who leaves by leave; ok is false if there are too many, in total
// or of that user.
func (h *hub) enter(user string, most int) (leave func(), ok bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.viewers >= mostViewers || h.of[user] >= most {
		return nil, false
	}
	h.viewers++
	h.of[user]++
	select {
	case h.wanted <- struct{}{}:
	default:
	}
	return sync.OnceFunc(func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.viewers--
		if h.of[user]--; h.of[user] == 0 {
			delete(h.of, user)
		}
		h.left = h.clock.Now()
	}), true
}

// after returns the latest frame if it is another one than seen, which is nil at first. Otherwise
// it returns what is closed when there is one.
func (h *hub) after(seen *frame) (*frame, <-chan struct{}) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch h.latest {
	case nil:
		return nil, h.first
	case seen:
		return nil, seen.next
	}
	return h.latest, nil
}

// run computes states while there are viewers, until ctx ends.
func (h *hub) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-h.wanted:
			h.serve(ctx)
		}
	}
}

// serve watches and computes until there was no viewer for some time.
func (h *hub) serve(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	var watching sync.WaitGroup
	watching.Go(func() { h.source.Run(ctx) })
	defer watching.Wait()
	defer cancel()
	ticker := h.clock.NewTicker(computeEach)
	defer ticker.Stop()
	var computed, again time.Time
	var changes uint64
	for {
		now, is := h.clock.Now(), h.source.Changes()
		if !now.Before(again) && (is != changes || now.Sub(computed) >= computeAtLeast) {
			h.publish(ctx)
			changes, computed, again = is, now, now.Add(share*h.clock.Since(now))
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
		}
		if h.end() {
			return
		}
	}
}

// end forgets the states if there was no viewer for some time.
func (h *hub) end() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.viewers > 0 || h.clock.Since(h.left) < watchAfter {
		return false
	}
	select {
	case <-h.wanted: // of a viewer who has gone
	default:
	}
	if h.latest != nil {
		close(h.latest.next)
		h.latest, h.first = nil, make(chan struct{})
	}
	return true
}

// publish computes a state, and shows it to viewers if it differs.
func (h *hub) publish(ctx context.Context) {
	state, err := model.Of(h.source.Read()).Encode()
	if err != nil {
		klog.FromContext(ctx).Error(err, "Failed to encode the state of the page")
		return
	}
	next := &frame{state: state, next: make(chan struct{})}
	h.mu.Lock()
	before := h.latest
	h.mu.Unlock()
	if before == nil {
		next.number = 1
		h.show(next)
		return
	}
	message := model.Change(before.state, state)
	if message.IsEmpty() {
		return
	}
	next.number = before.number + 1
	next.change, _ = json.Marshal(message)
	h.show(next)
}

func (h *hub) show(next *frame) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.latest == nil {
		close(h.first)
	} else {
		close(h.latest.next)
	}
	h.latest = next
}
