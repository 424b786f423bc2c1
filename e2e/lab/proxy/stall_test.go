package proxy

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Shopify/toxiproxy/v2/stream"
	"github.com/Shopify/toxiproxy/v2/toxics"
)

func TestStallMeasuresBytesWithinItsWindow(t *testing.T) {
	begin := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	type piece struct {
		at   time.Duration
		size int64
		want bool
	}
	for name, pieces := range map[string][]piece{
		"a small answer":                        {{0, 1000, true}},
		"an answer of the size that is allowed": {{0, 10_000, true}},
		"a large answer":                        {{0, 10_001, false}},
		"a large answer in pieces":              {{0, 4000, true}, {time.Millisecond, 4000, true}, {2 * time.Millisecond, 4000, false}},
		"small answers, one after the other":    {{0, 6000, true}, {50 * time.Millisecond, 6000, true}, {100 * time.Millisecond, 6000, true}},
		"the whole window between them":         {{0, 9000, true}, {100 * time.Millisecond, 9000, true}},
		"half of the window between them":       {{0, 9000, true}, {50 * time.Millisecond, 9000, false}},
		"nothing passes what has stopped":       {{0, 10_001, false}, {time.Minute, 1, false}},
	} {
		t.Run(name, func(t *testing.T) {
			f := new(flow)
			for _, p := range pieces {
				if got := f.takes(begin.Add(p.at), p.size, 10_000); got != p.want {
					t.Errorf("%d bytes after %s pass: %t, want %t", p.size, p.at, got, p.want)
				}
			}
		})
	}
}

// The hold begins with the answer that stops the connection; later data does not extend it.
func TestStallClosesAConnectionAfterItsHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		input, output := make(chan *stream.StreamChunk), make(chan *stream.StreamChunk)
		stub := toxics.NewToxicStub(input, output)
		s := &stall{AboveKB: 1, HoldMillis: 5000}
		stub.State = s.NewState()
		go stub.Run(&toxics.ToxicWrapper{Toxic: s, Toxicity: 1})
		small := &stream.StreamChunk{Data: make([]byte, 500)}
		input <- small
		if got := <-output; got != small {
			t.Fatalf("%v arrives, want the small answer", got)
		}
		begin := time.Now()
		input <- &stream.StreamChunk{Data: make([]byte, 5000)}
		time.Sleep(3 * time.Second)
		input <- small
		if got, open := <-output; open {
			t.Errorf("%v arrives behind the large answer", got)
		}
		if took := time.Since(begin); took != 5*time.Second {
			t.Errorf("the connection was closed after %s, want 5s", took)
		}
	})
}

// A stall can end while the client does not read, as when it is paused.
func TestStallIsInterruptedWithoutReader(t *testing.T) {
	input, output := make(chan *stream.StreamChunk), make(chan *stream.StreamChunk)
	stub := toxics.NewToxicStub(input, output)
	s := &stall{AboveKB: 1}
	stub.State = s.NewState()
	run := func() { go stub.Run(&toxics.ToxicWrapper{Toxic: s, Toxicity: 1}) }
	run()
	chunk := &stream.StreamChunk{Data: []byte("hello")}
	input <- chunk
	if !stub.InterruptToxic() {
		t.Fatal("it has ended")
	}
	run()
	if got := <-output; got != chunk {
		t.Errorf("%v arrives, want what was accepted", got)
	}
	close(input)
	if got, open := <-output; open {
		t.Errorf("%v arrives after the end", got)
	}
}

const (
	listSize = 200_000
	putSize  = 2000
	aboveKB  = 64
)

// stalled is a server of lists and of single objects with TLS, behind a proxy with a stall.
func stalled(t *testing.T, http2 bool, hold time.Duration) (set *Set, client *http.Client) {
	t.Helper()
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		size := listSize
		if r.Method == http.MethodPut {
			size = putSize
		}
		_, _ = w.Write(bytes.Repeat([]byte("x"), size))
	}))
	server.EnableHTTP2 = http2
	server.StartTLS()
	t.Cleanup(server.Close)
	set = NewSet()
	if err := set.Open("it", "127.0.0.1:0", server.Listener.Addr().String()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(set.CloseAll)
	transport := &http.Transport{
		TLSClientConfig:   &tls.Config{InsecureSkipVerify: true},
		ForceAttemptHTTP2: http2,
	}
	t.Cleanup(transport.CloseIdleConnections)
	fault(t, set, Fault{Kind: Stall, AboveKB: aboveKB, HoldMillis: hold.Milliseconds()})
	return set, &http.Client{Transport: transport}
}

func send(ctx context.Context, client *http.Client, method, address string) (read int, err error) {
	request, err := http.NewRequestWithContext(ctx, method, "https://"+address, http.NoBody)
	if err != nil {
		return 0, err
	}
	answer, err := client.Do(request)
	if err != nil {
		return 0, err
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	return len(body), err
}

func expectPut(t *testing.T, client *http.Client, address string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), long)
	defer cancel()
	if read, err := send(ctx, client, http.MethodPut, address); read != putSize || err != nil {
		t.Errorf("a write is answered with %d bytes, %v; want %d", read, err, putSize)
	}
}

// With HTTP/1.1 a list has its own connection: writes continue meanwhile.
func TestListsHangWhileWritesPass(t *testing.T) {
	set, client := stalled(t, false, 0)
	address := set.List()[0].Listen
	expectPut(t, client, address)
	ctx, cancel := context.WithCancel(t.Context())
	listed := make(chan error, 1)
	go func() {
		_, err := send(ctx, client, http.MethodGet, address)
		listed <- err
	}()
	for range 20 {
		expectPut(t, client, address)
	}
	select {
	case err := <-listed:
		t.Errorf("the list has ended: %v", err)
	case <-time.After(short):
	}
	cancel()
	if err := <-listed; !errors.Is(err, context.Canceled) {
		t.Errorf("the list: %v, want %v", err, context.Canceled)
	}
	fault(t, set, Fault{})
	if read, err := send(t.Context(), client, http.MethodGet, address); read != listSize || err != nil {
		t.Errorf("after the stall a list is answered with %d bytes, %v; want %d", read, err, listSize)
	}
}

// With HTTP/2 lists and writes share a connection. It is closed after the hold, lists fail, and
// writes pass on the next one.
func TestListsFailAndWritesPassOnTheNextConnectionWithHTTP2(t *testing.T) {
	set, client := stalled(t, true, short)
	address := set.List()[0].Listen
	expectPut(t, client, address)
	for range 3 {
		ctx, cancel := context.WithTimeout(t.Context(), long)
		_, err := send(ctx, client, http.MethodGet, address)
		if err == nil || ctx.Err() != nil {
			t.Errorf("a list: %v, want it to fail when the hold is over", err)
		}
		cancel()
		expectPut(t, client, address)
	}
}

func TestStallHoldsForOpenConnectionsAndEndsThem(t *testing.T) {
	set, _ := open(t)
	before := dial(t, set)
	expectAnswer(t, before, "before")
	fault(t, set, Fault{Kind: Stall, AboveKB: 1})
	expectAnswer(t, before, "small")
	expectSilence(t, before, strings.Repeat("x", 2000))
	expectAnswer(t, dial(t, set), "small")
	fault(t, set, Fault{})
	expectClosed(t, before)
	expectAnswer(t, dial(t, set), strings.Repeat("x", 2000))
}
