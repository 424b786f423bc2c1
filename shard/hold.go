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

// Hold stops work between its check and its send, for tests that want a request to be late. A nil Hold stops nothing.
//
//	POST   /debug/hold {"match": "DELETE /apis/"}   the next work whose name contains the text stops
//	GET    /debug/hold                              what is waited for, and what is held
//	DELETE /debug/hold                              all that is held goes on, whatever has become of its ownership
//
// The name of a request is its method and path, that of a call of a driver its operation and namespace/name.
type Hold struct {
	mu      sync.Mutex
	matches []string
	held    []string
	release chan struct{}
}

// NewHold makes a Hold that holds nothing.
func NewHold() *Hold { return &Hold{release: make(chan struct{})} }

// here is called between a check and a send. What is held goes on when it is released, under a context that does not end:
// the end of the ownership is what it is to be later than.
func (h *Hold) here(ctx context.Context, what string) context.Context {
	if h == nil {
		return ctx
	}
	h.mu.Lock()
	i := slices.IndexFunc(h.matches, func(match string) bool { return strings.Contains(what, match) })
	if i < 0 {
		h.mu.Unlock()
		return ctx
	}
	h.matches = slices.Delete(h.matches, i, i+1)
	h.held = append(h.held, what)
	release := h.release
	h.mu.Unlock()
	<-release
	return context.WithoutCancel(ctx)
}

// ServeHTTP is the debug hook.
func (h *Hold) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch r.Method {
	case http.MethodPost:
		var order struct {
			Match string `json:"match"`
		}
		if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 1<<12)).Decode(&order); err != nil || order.Match == "" {
			http.Error(w, fmt.Sprintf(`expected {"match": "<part of a name>"}: %v`, err), http.StatusBadRequest)
			return
		}
		h.matches = append(h.matches, order.Match)
	case http.MethodDelete:
		close(h.release)
		h.release, h.held, h.matches = make(chan struct{}), nil, nil
	case http.MethodGet:
	default:
		http.Error(w, "expected GET, POST or DELETE", http.StatusMethodNotAllowed)
		return
	}
	writeJSON(w, map[string][]string{"matches": h.matches, "held": h.held})
}
