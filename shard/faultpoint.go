package shard

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
)

// FaultPoint stops work between its check and its send, for tests that want a request to be late, or the process to end just
// then. A nil Hold stops nothing.
//
//	POST   /debug/faultpoints {"match": "DELETE /apis/"}   the next work whose name contains the text stops
//	GET    /debug/faultpoints                              what is waited for, and what is held
//	PUT    /debug/faultpoints {"answer": true}             the first that is held goes on; with answer, its answer is held then
//	DELETE /debug/faultpoints                              all that is held goes on, whatever has become of its ownership, and
//	                                                nothing stops any more
//
// The name of a request is its method and path, that of a call of a driver its operation and namespace/name; the ownership
// that it is made under follows. The name of an answer begins with "answer to ".
type FaultPoint struct {
	mu      sync.Mutex
	every   string // all work stops whose name contains it; "" means none
	matches []string
	held    []*stopped
}

// stopped is work, or the answer to it, that does not go on.
type stopped struct {
	what string
	goes chan bool // also says whether the answer is to be held
}

// NewFaultPoint makes a Hold that stops all work whose name contains every; "" means none.
func NewFaultPoint(every string) *FaultPoint { return &FaultPoint{every: every} }

// here is called between a check and a send. What is held goes on when it is released, under a context that does not end:
// the end of the ownership is what it is to be later than. answered is called when there is an answer.
func (h *FaultPoint) here(ctx context.Context, what string, under Ownership) (late context.Context, answered func()) {
	answered = func() {}
	if h == nil {
		return ctx, answered
	}
	if owner := under.String(); owner != "" {
		what += " under " + owner
	}
	goes := h.stop(what)
	if goes == nil {
		return ctx, answered
	}
	if <-goes {
		answered = func() { h.answer(what) }
	}
	return context.WithoutCancel(ctx), answered
}

// stop holds work if it is to be held, and returns nil else.
func (h *FaultPoint) stop(what string) (goes chan bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	i := slices.IndexFunc(h.matches, func(match string) bool { return strings.Contains(what, match) })
	switch {
	case i >= 0:
		h.matches = slices.Delete(h.matches, i, i+1)
	case h.every == "" || !strings.Contains(what, h.every):
		return nil
	}
	return h.add(what)
}

// add notes something as held; h.mu is held.
func (h *FaultPoint) add(what string) (goes chan bool) {
	one := &stopped{what: what, goes: make(chan bool, 1)}
	h.held = append(h.held, one)
	return one.goes
}

// answer holds an answer until it is let go.
func (h *FaultPoint) answer(what string) {
	h.mu.Lock()
	goes := h.add("answer to " + what)
	h.mu.Unlock()
	<-goes
}

// ServeHTTP is the debug hook.
func (h *FaultPoint) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h.mu.Lock()
	defer h.mu.Unlock()
	var order struct {
		Match  string `json:"match"`
		Answer bool   `json:"answer"`
	}
	if r.Method == http.MethodPost || r.Method == http.MethodPut {
		if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 1<<12)).Decode(&order); err != nil {
			http.Error(w, fmt.Sprintf("the order cannot be read: %v", err), http.StatusBadRequest)
			return
		}
	}
	switch r.Method {
	case http.MethodPost:
		if order.Match == "" {
			http.Error(w, `expected {"match": "<part of a name>"}`, http.StatusBadRequest)
			return
		}
		h.matches = append(h.matches, order.Match)
	case http.MethodPut:
		if len(h.held) == 0 {
			http.Error(w, "nothing is held", http.StatusConflict)
			return
		}
		h.held[0].goes <- order.Answer
		h.held = h.held[1:]
	case http.MethodDelete:
		for _, one := range h.held {
			one.goes <- false
		}
		h.every, h.held, h.matches = "", nil, nil
	case http.MethodGet:
	default:
		http.Error(w, "expected GET, POST, PUT or DELETE", http.StatusMethodNotAllowed)
		return
	}
	writeJSON(w, map[string][]string{"matches": h.matches, "held": h.names()})
}

// names are those of what is held, in the order in which it came; h.mu is held.
func (h *FaultPoint) names() (names []string) {
	for _, one := range h.held {
		names = append(names, one.what)
	}
	return names
}
