package fence

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
)

// FaultPoint stops work between its check and its send, for tests in which a request is late, or
// the process ends at that moment. A nil FaultPoint stops nothing.
//
//	POST   /debug/faultpoints {"match": "DELETE /apis/"}   the next work whose name contains the text stops
//	GET    /debug/faultpoints                              the texts that no work has matched yet, and the work that is stopped
//	PUT    /debug/faultpoints {"answer": true}             the first work that is stopped continues; with answer, its answer stops
//	DELETE /debug/faultpoints                              all work that is stopped continues, also without its ownership, and
//	                                                       no more work stops
//
// The name of a request is its method and path, that of a call of a driver its operation and
// namespace/name; its ownership follows. The name of an answer begins with "answer to ".
type FaultPoint struct {
	mu      sync.Mutex
	every   string // all work stops whose name contains it; "" means none
	matches []string
	waiting []*stopped
}

// stopped is work, or the answer to it, that waits to continue.
type stopped struct {
	what string
	goes chan bool // receives when the work continues: true if its answer must stop
}

// NewFaultPoint returns a FaultPoint that stops all work whose name contains every; "" stops none.
func NewFaultPoint(every string) *FaultPoint { return &FaultPoint{every: every} }

// here is called between a check and a send. Work that was stopped continues under a context that
// does not end, so that it is sent after the end of its ownership. answered has to be called when
// there is an answer.
func (p *FaultPoint) here(ctx context.Context, what string, under Ownership) (late context.Context, answered func()) {
	answered = func() {}
	if p == nil {
		return ctx, answered
	}
	if owner := under.String(); owner != "" {
		what += " under " + owner
	}
	goes := p.stop(what)
	if goes == nil {
		return ctx, answered
	}
	if <-goes {
		answered = func() { p.answer(what) }
	}
	return context.WithoutCancel(ctx), answered
}

// stop stops work that matches; it returns nil for other work.
func (p *FaultPoint) stop(what string) (goes chan bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	i := slices.IndexFunc(p.matches, func(match string) bool { return strings.Contains(what, match) })
	switch {
	case i >= 0:
		p.matches = slices.Delete(p.matches, i, i+1)
	case p.every == "" || !strings.Contains(what, p.every):
		return nil
	}
	return p.add(what)
}

// add records work or an answer as stopped. The caller must hold p.mu.
func (p *FaultPoint) add(what string) (goes chan bool) {
	one := &stopped{what: what, goes: make(chan bool, 1)}
	p.waiting = append(p.waiting, one)
	return one.goes
}

// answer stops an answer until it may continue.
func (p *FaultPoint) answer(what string) {
	p.mu.Lock()
	goes := p.add("answer to " + what)
	p.mu.Unlock()
	<-goes
}

// ServeHTTP is the debug hook.
func (p *FaultPoint) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var order struct {
		Match  string `json:"match"`
		Answer bool   `json:"answer"`
	}
	if r.Method == http.MethodPost || r.Method == http.MethodPut {
		if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 1<<12)).Decode(&order); err != nil {
			http.Error(w, fmt.Sprintf("expected a JSON object with match or answer: %v", err), http.StatusBadRequest)
			return
		}
	}
	switch r.Method {
	case http.MethodPost:
		if order.Match == "" {
			http.Error(w, `expected {"match": "<part of a name>"}`, http.StatusBadRequest)
			return
		}
		p.matches = append(p.matches, order.Match)
	case http.MethodPut:
		if len(p.waiting) == 0 {
			http.Error(w, "nothing is held", http.StatusConflict)
			return
		}
		p.waiting[0].goes <- order.Answer
		p.waiting = p.waiting[1:]
	case http.MethodDelete:
		for _, one := range p.waiting {
			one.goes <- false
		}
		p.every, p.waiting, p.matches = "", nil, nil
	case http.MethodGet:
	default:
		http.Error(w, "expected GET, POST, PUT or DELETE", http.StatusMethodNotAllowed)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	_ = encoder.Encode(map[string][]string{"matches": p.matches, "held": p.names()}) // an error means that the client has disconnected
}

// names returns the names of what is stopped, in the order in which it was stopped. The caller must
// hold p.mu.
func (p *FaultPoint) names() (names []string) {
	for _, one := range p.waiting {
		names = append(names, one.what)
	}
	return names
}
