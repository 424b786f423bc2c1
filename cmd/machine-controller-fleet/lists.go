package main

import (
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// listHealth records whether an API server answers lists: controllers list live before decisions with consequences, and
// where small requests are answered and large ones are not, established watches still deliver. It is safe for concurrent
// use.
type listHealth struct {
	clock clock.PassiveClock

	mu    sync.Mutex
	kinds map[string]*listing // by resource
}

// listing has the results of the lists of a resource.
type listing struct {
	begun []*time.Time // of those that are not answered yet
	// since is when the first list began that has failed since one was last answered, last when one failed last; zero: none has.
	since, last time.Time
}

func newListHealth(c clock.PassiveClock) *listHealth {
	return &listHealth{clock: c, kinds: map[string]*listing{}}
}

// Broken returns a resource whose lists are not answered: one has hung for that long, or they have failed for that long and recently.
// ok is false if there is none.
func (h *listHealth) Broken(after time.Duration) (resource string, ok bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := h.clock.Now()
	var broken []string
	for name, l := range h.kinds {
		hangs := slices.ContainsFunc(l.begun, func(begun *time.Time) bool { return now.Sub(*begun) >= after })
		fails := !l.since.IsZero() && now.Sub(l.since) >= after && now.Sub(l.last) < 2*after
		if hangs || fails {
			broken = append(broken, name)
		}
	}
	if len(broken) == 0 {
		return "", false
	}
	return slices.Min(broken), true
}

// wrap returns a transport whose lists are recorded.
func (h *listHealth) wrap(next http.RoundTripper) http.RoundTripper {
	return &listTransport{health: h, next: next}
}

func (h *listHealth) begin(resource string) (done func(ok, isEvidence bool)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	l := h.kinds[resource]
	if l == nil {
		l = &listing{}
		h.kinds[resource] = l
	}
	begun := h.clock.Now()
	l.begun = append(l.begun, &begun)
	var once sync.Once
	return func(ok, isEvidence bool) {
		once.Do(func() {
			h.mu.Lock()
			defer h.mu.Unlock()
			l.begun = slices.DeleteFunc(l.begun, func(other *time.Time) bool { return other == &begun })
			switch {
			case ok:
				l.since, l.last = time.Time{}, time.Time{}
			case isEvidence:
				l.last = h.clock.Now()
				if l.since.IsZero() {
					l.since = begun
				}
			}
		})
	}
}

// listTransport is the http.RoundTripper.
type listTransport struct {
	health *listHealth
	next   http.RoundTripper
}

// WrappedRoundTripper returns the transport below, through which client-go finds the connections to close.
func (t *listTransport) WrappedRoundTripper() http.RoundTripper { return t.next }

// RoundTrip sends a request. Errors: those of the transport below.
func (t *listTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	resource, isList := listedResource(r)
	if !isList {
		return t.next.RoundTrip(r)
	}
	done := t.health.begin(resource)
	answer, err := t.next.RoundTrip(r)
	if err != nil {
		done(false, r.Context().Err() == nil) // a canceled one proves nothing
		return nil, err
	}
	if answer.StatusCode >= http.StatusInternalServerError {
		done(false, true)
		return answer, nil
	}
	answer.Body = &listBody{ReadCloser: answer.Body, request: r, done: done}
	return answer, nil
}

// listBody records whether a list was read completely.
type listBody struct {
	io.ReadCloser

	request *http.Request
	done    func(ok, isEvidence bool)
}

func (b *listBody) Read(into []byte) (int, error) {
	n, err := b.ReadCloser.Read(into)
	switch {
	case errors.Is(err, io.EOF):
		b.done(true, true)
	case err != nil:
		b.done(false, b.request.Context().Err() == nil)
	}
	return n, err
}

// Close ends the list. One that was not read to its end proves nothing.
func (b *listBody) Close() error {
	b.done(false, false)
	return b.ReadCloser.Close()
}

// listedResource returns the resource that a request lists; ok is false if it is another request, or a watch.
func listedResource(r *http.Request) (resource string, ok bool) {
	if r.Method != http.MethodGet || r.URL.Query().Get("watch") != "" {
		return "", false
	}
	path := "/" + strings.Trim(r.URL.Path, "/")
	if _, rest, found := strings.Cut(path, "/apis/"); found {
		path = rest[strings.Index(rest, "/")+1:] // without the group
	} else if _, path, found = strings.Cut(path, "/api/"); !found {
		return "", false
	}
	parts := strings.Split(path, "/")[1:] // without the version
	if len(parts) == 3 && parts[0] == "namespaces" {
		parts = parts[2:]
	}
	if len(parts) != 1 {
		return "", false
	}
	return parts[0], true
}
