package httpclient

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// serve runs a cloud and returns a client and a function that sends a request.
func serve(t *testing.T, answer http.HandlerFunc) (*Client, func(ctx context.Context, limits Limits, use func(Answer) error) error) {
	t.Helper()
	server := httptest.NewServer(answer)
	client := New(nil)
	t.Cleanup(server.Close)
	t.Cleanup(client.CloseIdleConnections)
	return client, func(ctx context.Context, limits Limits, use func(Answer) error) error {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, server.URL, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		return client.Do(req, limits, use)
	}
}

func accept(Answer) error { return nil }

func TestAnswersUpToTheirLimits(t *testing.T) {
	limits := Limits{Bytes: 200 << 10, Values: 1000}
	for name, c := range map[string]struct {
		body    string
		limited string // what of it is too large
	}{
		"nothing":               {"", ""},
		"small":                 {`{"a": [1, 2]}`, ""},
		"as long as is allowed": {strings.Repeat("x", 200<<10), ""},
		"a byte longer":         {strings.Repeat("x", 200<<10+1), "bytes"},
		"as many as allowed":    {"[" + strings.Repeat("1,", 998) + "1]", ""},
		"one more":              {"[" + strings.Repeat("1,", 999) + "1]", "values"},
		"one in the other":      {strings.Repeat(`{"a":`, 999) + "1" + strings.Repeat("}", 999), ""},
		"one more in the other": {strings.Repeat(`{"a":`, 1000) + "1" + strings.Repeat("}", 1000), "values"},
		"text is one":           {`{"a": "` + strings.Repeat(`\",[{`, 10_000) + `"}`, ""},
		"just what is small":    {strings.Repeat("x", small), ""},
	} {
		for _, chunked := range []bool{false, true} {
			_, ask := serve(t, func(w http.ResponseWriter, _ *http.Request) {
				if chunked {
					_ = http.NewResponseController(w).Flush()
				} else {
					w.Header().Set("Content-Length", strconv.Itoa(len(c.body)))
				}
				_, _ = io.WriteString(w, c.body)
			})
			var got string
			err := ask(t.Context(), limits, func(a Answer) error {
				got = string(a.Body)
				return nil
			})
			limited := ""
			if found, ok := errors.AsType[*LimitError](err); ok {
				limited = found.What
			} else if err != nil || got != c.body {
				t.Errorf("%s: %v, with %d bytes of %d", name, err, len(got), len(c.body))
			}
			if limited != c.limited {
				t.Errorf("%s, chunked: %t: limited by %q, want %q", name, chunked, limited, c.limited)
			}
		}
	}
}

// A body of 63 MiB of {} would become 16 GB when it is decoded, and a small one that is compressed
// as well.
func TestAnAnswerCostsItsLimit(t *testing.T) {
	const size = 63 << 20
	var packed bytes.Buffer
	writer := gzip.NewWriter(&packed)
	list := func(w io.Writer) {
		_, _ = io.WriteString(w, `{"items":[{}`)
		for chunk, written := bytes.Repeat([]byte(",{}"), 1<<15), 0; written < size; written += len(chunk) {
			if _, err := w.Write(chunk); err != nil {
				return
			}
		}
		_, _ = io.WriteString(w, "]}")
	}
	list(writer)
	_ = writer.Close()
	// The buffer doubles while it grows, up to twice of what is in it: 32 MiB in all, and something
	// for the server, which has twice as much to allocate under the race detector.
	const limit = 96 << 20
	for name, c := range map[string]struct {
		answer http.HandlerFunc
		limit  uint64
	}{
		"plain": {func(w http.ResponseWriter, _ *http.Request) { list(w) }, limit},
		"packed": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Encoding", "gzip")
			_, _ = w.Write(packed.Bytes())
		}, limit},
		"announced": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", strconv.Itoa(size))
			list(w)
		}, 1 << 20},
		"in few bytes": {func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, `{"items":[{}`+strings.Repeat(",{}", int(Page().Bytes)/4)+"]}")
		}, limit}, // with what the test sends
	} {
		_, ask := serve(t, c.answer)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		err := ask(t.Context(), Page(), accept)
		runtime.ReadMemStats(&after)
		if _, limited := errors.AsType[*LimitError](err); !limited {
			t.Errorf("%s: %v, want a LimitError", name, err)
		}
		if cost := after.TotalAlloc - before.TotalAlloc; cost > c.limit {
			t.Errorf("%s: it cost %d bytes, want at most %d", name, cost, c.limit)
		}
	}
	// A small pod has 256 MiB.
	if most := maxConnections*small + maxLarge*2*Page().Bytes; most > 128<<20 {
		t.Errorf("all answers that are read at a time take %d bytes", most)
	}
	const value = 1 << 10 // a large one
	if most := value * (maxConnections*smallValues + maxLarge*One().Values); most > 192<<20 {
		t.Errorf("all answers about one thing that are decoded at a time take %d bytes", most)
	}
}

// However many answers arrive at a time, few of them are large and in memory.
func TestFewLargeAnswersAtATime(t *testing.T) {
	for name, body := range map[string]string{
		"of many bytes": strings.Repeat("x", small+1), "of many values": `{"items":[{}` + strings.Repeat(",{}", smallValues) + "]}",
	} {
		t.Run(name, func(t *testing.T) { fewAtATime(t, body) })
	}
}

func fewAtATime(t *testing.T, body string) {
	t.Helper()
	_, ask := serve(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, body) })
	var mu sync.Mutex
	var blocked, most int
	note := func(more int) {
		mu.Lock()
		defer mu.Unlock()
		blocked += more
		most = max(most, blocked)
	}
	var calling sync.WaitGroup
	full, release := make(chan struct{}, 3*maxLarge), make(chan struct{})
	for range 3 * maxLarge {
		calling.Go(func() {
			if err := ask(t.Context(), Page(), func(Answer) error {
				note(1)
				full <- struct{}{}
				<-release
				note(-1)
				return nil
			}); err != nil {
				t.Error(err)
			}
		})
	}
	for range maxLarge {
		<-full
	}
	late, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := ask(late, Page(), accept); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("one that finds no place: %v, want the end of its context", err)
	}
	close(release)
	calling.Wait()
	if most > maxLarge {
		t.Errorf("%d large answers at a time, want at most %d", most, maxLarge)
	}
}

// An answer that is rejected releases its place.
func TestRejectedAnswersReleaseTheirPlaces(t *testing.T) {
	body := strings.Repeat("x", small+1)
	_, ask := serve(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, body) })
	for range 2 * maxLarge {
		_, isLimited := errors.AsType[*LimitError](ask(t.Context(), Limits{Bytes: small, Values: 10}, accept))
		if !isLimited {
			t.Fatal("it was not rejected")
		}
	}
	if err := ask(t.Context(), One(), accept); err != nil {
		t.Error(err)
	}
}

// An answer of which a part has come, and no more, ends with the context of its request and
// releases its place.
func TestAnswersThatStopHalfwayEndWithTheirContext(t *testing.T) {
	for name, sent := range map[string]int{"before its body": 0, "in a small part": 1, "in a large part": 2 * small} {
		t.Run(name, func(t *testing.T) {
			end := make(chan struct{})
			_, ask := serve(t, func(w http.ResponseWriter, r *http.Request) {
				select {
				case <-end: // answers are quick again
					_, _ = io.WriteString(w, strings.Repeat("x", 2*small))
					return
				default:
				}
				if sent > 0 {
					_, _ = io.WriteString(w, strings.Repeat("x", sent))
					_ = http.NewResponseController(w).Flush()
				}
				<-r.Context().Done()
			})
			var calling sync.WaitGroup
			for range 2 * maxLarge {
				calling.Go(func() {
					ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
					defer cancel()
					if err := ask(ctx, Page(), accept); !errors.Is(err, context.DeadlineExceeded) {
						t.Errorf("got %v, want the end of the context", err)
					}
				})
			}
			calling.Wait()
			close(end)
			for range maxLarge + 1 {
				if err := ask(t.Context(), Page(), accept); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

// An answer of a cloud that fails is an answer.
func TestErrorsAreAnswers(t *testing.T) {
	for _, status := range []int{400, 404, 412, 500, 503} {
		_, ask := serve(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) })
		var got int
		err := ask(t.Context(), One(), func(a Answer) error {
			got = a.Status
			return nil
		})
		if err != nil || got != status {
			t.Errorf("%d: status %d, %v", status, got, err)
		}
	}
}

func TestRedirectsAreNotFollowed(t *testing.T) {
	var configured atomic.Int64
	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { configured.Add(1) }))
	defer elsewhere.Close()
	for _, status := range []int{300, 301, 302, 303, 304, 307, 308} {
		_, ask := serve(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Location", elsewhere.URL)
			w.WriteHeader(status)
		})
		err := ask(t.Context(), One(), accept)
		redirect, ok := errors.AsType[*RedirectError](err)
		if !ok || redirect.Status != status || strings.Contains(err.Error(), elsewhere.URL) {
			t.Errorf("%d: %v, want a RedirectError without the location", status, err)
		}
	}
	if got := configured.Load(); got > 0 {
		t.Errorf("%d redirects were followed", got)
	}
}

func TestHeadersAreBounded(t *testing.T) {
	_, ask := serve(t, func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("X", strings.Repeat("x", 2*maxHeader)) })
	if err := ask(t.Context(), One(), accept); err == nil {
		t.Error("a header of twice the limit is accepted")
	}
}

// A cloud that does not answer keeps no more connections open than allowed.
func TestConnectionsAreBounded(t *testing.T) {
	transport := Transport()
	if transport.MaxConnsPerHost != maxConnections || transport.IdleConnTimeout != idleTime || transport.MaxIdleConnsPerHost != maxIdle {
		t.Errorf("%d connections, %d of them idle for %s", transport.MaxConnsPerHost, transport.MaxIdleConnsPerHost, transport.IdleConnTimeout)
	}
	const most = 3
	transport.MaxConnsPerHost = most
	arrived := make(chan struct{}, most+1)
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		arrived <- struct{}{}
		<-r.Context().Done()
	}))
	defer server.Close()
	client := New(transport)
	defer client.CloseIdleConnections()
	ask := func(ctx context.Context) error {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, server.URL, http.NoBody)
		if err != nil {
			return err
		}
		return client.Do(req, One(), accept)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var calling sync.WaitGroup
	defer calling.Wait()
	defer cancel()
	for range most {
		calling.Go(func() { _ = ask(ctx) })
		<-arrived
	}
	late, cancelLate := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancelLate()
	if err := ask(late); !errors.Is(err, context.DeadlineExceeded) || len(arrived) > 0 {
		t.Errorf("one more: %v, %d arrived; want it to wait for a connection", err, len(arrived))
	}
}

// A connection serves one request after the other, until it is closed while no request uses it.
func TestNextRequestConnectsAfterIdleConnectionsAreClosed(t *testing.T) {
	from := make(chan string, 3)
	client, ask := serve(t, func(_ http.ResponseWriter, r *http.Request) { from <- r.RemoteAddr })
	request := func() string {
		t.Helper()
		if err := ask(t.Context(), One(), accept); err != nil {
			t.Fatal(err)
		}
		return <-from
	}
	first, second := request(), request()
	client.CloseIdleConnections()
	if third := request(); first != second || second == third {
		t.Errorf("requests came from %s, %s and %s; want the same connection twice, and another one", first, second, third)
	}
}

func FuzzValues(f *testing.F) {
	f.Add([]byte(`{"a": [1, "b,\"", {}]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		if got := values(text); got < 1 || got > len(text)+1 {
			t.Errorf("%q: %d values", text, got)
		}
	})
}
