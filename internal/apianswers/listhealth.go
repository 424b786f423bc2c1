package apianswers

import (
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// ListHealth records whether an API server answers lists of some resources. Create one with
// NewListHealth. It is safe for concurrent use.
type ListHealth struct {
	clock clock.PassiveClock

	mu    sync.Mutex
	kinds map[string]*listing // by resource; others are not recorded
}

// listing has the results of the lists of a resource.
type listing struct {
	begun []*time.Time // of those that are not answered yet
	// failed counts the lists that have failed since one was last answered; since is when the first of
	// them began, last when the last one failed.
	failed      int
	since, last time.Time
	// took is how long the last list took that was answered.
	took time.Duration
}

// mostTolerance limits how long a list may hang because the one before was slow.
const mostTolerance = 4 * time.Minute

// Tolerance returns for how long a list may not be answered before that is a fault: where the last
// one that was answered was slow, for twice as long as that one took.
func Tolerance(after, took time.Duration) time.Duration {
	return max(after, min(2*took, mostTolerance))
}

// NewListHealth returns a ListHealth of lists of these resources, of which nothing is broken.
func NewListHealth(c clock.PassiveClock, resources ...string) *ListHealth {
	h := &ListHealth{clock: c, kinds: map[string]*listing{}}
	for _, name := range resources {
		h.kinds[name] = &listing{}
	}
	return h
}

// Broken returns a resource whose lists are not answered: several have failed, for that long and
// recently, or one has hung for its Tolerance. ok is false if there is none.
func (h *ListHealth) Broken(after time.Duration) (resource string, ok bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := h.clock.Now()
	var broken []string
	for name, l := range h.kinds {
		tolerance := Tolerance(after, l.took)
		hangs := slices.ContainsFunc(l.begun, func(begun *time.Time) bool { return now.Sub(*begun) >= tolerance })
		fails := l.failed > 1 && now.Sub(l.since) >= after && now.Sub(l.last) < 2*after
		if hangs || fails {
			broken = append(broken, name)
		}
	}
	if len(broken) == 0 {
		return "", false
	}
	return slices.Min(broken), true
}

// Wrap returns a transport whose lists are recorded.
func (h *ListHealth) Wrap(next http.RoundTripper) http.RoundTripper {
	return &listTransport{health: h, next: next}
}

// Begin records that a list was requested. done records its outcome, once: whether it was answered,
// and if not whether that is evidence of anything.
func (h *ListHealth) Begin(resource string) (done func(ok, isEvidence bool)) {
	l := h.kinds[resource]
	if l == nil {
		return func(bool, bool) {}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
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
				l.failed, l.took = 0, h.clock.Since(begun)
			case isEvidence:
				if l.failed == 0 {
					l.since = begun
				}
				l.failed, l.last = l.failed+1, h.clock.Now()
			}
		})
	}
}

// unrecorded is the key of a context whose lists are not recorded.
type unrecorded struct{}

// Unrecorded returns a context whose lists are not recorded: those of which something else decides
// how long they may take.
func Unrecorded(ctx context.Context) context.Context {
	return context.WithValue(ctx, unrecorded{}, true)
}

// listTransport is the http.RoundTripper.
type listTransport struct {
	health *ListHealth
	next   http.RoundTripper
}

// WrappedRoundTripper returns the transport below, through which client-go finds the connections to
// close.
func (t *listTransport) WrappedRoundTripper() http.RoundTripper { return t.next }

// RoundTrip sends a request. Errors: those of the transport below.
func (t *listTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	resource, isList := listedResource(r)
	if !isList || r.Context().Value(unrecorded{}) != nil {
		return t.next.RoundTrip(r)
	}
	done := t.health.Begin(resource)
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

// listedResource returns the resource that a request lists; ok is false if it is another request,
// or a watch.
func listedResource(r *http.Request) (resource string, ok bool) {
	if r.Method != http.MethodGet || r.URL.Query().Get("watch") != "" {
		return "", false
	}
	path := "/" + strings.Trim(r.URL.Path, "/")
	if _, rest, found := strings.Cut(path, "/apis/"); found {
		path = rest[strings.Index(rest, "/")+1:] // without the group
	} else {
		_, path, _ = strings.Cut(path, "/api/")
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
