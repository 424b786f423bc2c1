package replica

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"net/http"
	"runtime/pprof"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/apiserver"
)

// The places that replicas send requests to.
const (
	atControl = "control"
	atTarget  = "target"
	atCloud   = "cloud"
)

// The kinds of requests.
const (
	lists   = "list"
	watches = "watch"
	gets    = "get"
	writes  = "write"
)

// request is a request on the network.
type request struct{ replica, place, kind, method, path string }

// direction of what is on the wire.
type direction bool

const (
	there direction = false
	back  direction = true
)

// brokenAfter is after what time a connection breaks without data: clients of HTTP/2 ping.
const brokenAfter = (pingAfter + pingTimeout) * time.Second

// disturbance is a part of the network that fails for some time.
type disturbance struct {
	name string
	// of selects requests; on their way there, back, or both.
	of          func(request) bool
	there, back bool
	// refuses makes requests fail at once; slowest makes them arrive late, by at most that much.
	// Otherwise they hang.
	refuses bool
	slowest time.Duration
	// answers, if set, answers in the place of an API server; nil for a request that passes.
	answers func(*http.Request) *http.Response

	over chan struct{} // closed when it has ended
}

// network is everything between replicas and the rest. Delays follow from the seed and from the
// request, not from the order in which goroutines run.
type network struct {
	seed uint64

	mu           sync.Mutex
	disturbances []*disturbance
	counts       map[request]uint64
	lossOneIn    uint64        // of answers to writes and calls; 0 is none
	lateOneIn    uint64        // of writes that arrive late, also when their sender has died; 0 is none
	lagMost      time.Duration // of watches
	busy         *busy         // API servers; nil for those that answer at once

	received func(q request, n int) // gets the number of bytes of each read of an answer; nil for none
}

// busy is an API server that answers one request after the other. What watches show waits as long.
type busy struct {
	each time.Duration // for each request
	free time.Time     // when it has answered all that have arrived
}

// receive counts bytes of an answer.
func (n *network) receive(q request, read int) {
	n.mu.Lock()
	received := n.received
	n.mu.Unlock()
	if received != nil {
		received(q, read)
	}
}

// be makes the API servers busy.
func (n *network) be(b *busy) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.busy = b
}

// queue returns for how long a request waits for its answer, or an event until it is sent.
func (n *network) queue(isRequest bool) time.Duration {
	n.mu.Lock()
	defer n.mu.Unlock()
	now := time.Now()
	if n.busy == nil {
		return 0
	}
	if n.busy.free.Before(now) {
		n.busy.free = now
	}
	if isRequest {
		n.busy.free = n.busy.free.Add(n.busy.each)
	}
	return n.busy.free.Sub(now)
}

func newNetwork(seed uint64) *network { return &network{seed: seed, counts: map[request]uint64{}} }

// disturb begins a disturbance.
func (n *network) disturb(d *disturbance) *disturbance {
	n.mu.Lock()
	defer n.mu.Unlock()
	d.over = make(chan struct{})
	n.disturbances = append(n.disturbances, d)
	return d
}

// heal ends a disturbance, if it has not ended.
func (n *network) heal(d *disturbance) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if slices.Contains(n.disturbances, d) {
		n.disturbances = slices.DeleteFunc(n.disturbances, func(other *disturbance) bool { return other == d })
		close(d.over)
	}
}

// healAll ends everything but what lasts.
func (n *network) healAll(lasting *disturbance) {
	n.mu.Lock()
	all := slices.Clone(n.disturbances)
	n.lossOneIn, n.lateOneIn, n.lagMost = 0, 0, 0
	n.mu.Unlock()
	for _, d := range all {
		if d != lasting {
			n.heal(d)
		}
	}
}

// meets returns a disturbance that a request meets, or nil.
func (n *network) meets(q request, way direction) *disturbance {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, d := range n.disturbances {
		if d.slowest == 0 && d.answers == nil && d.affects(q, way) {
			return d
		}
	}
	return nil
}

// instead returns the answer that a request gets in the place of the API server's; nil for none.
func (n *network) instead(r *http.Request, q request) *http.Response {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, d := range n.disturbances {
		if d.answers != nil && d.of(q) {
			if answer := d.answers(r); answer != nil {
				return answer
			}
		}
	}
	return nil
}

// answerOf returns an answer.
func answerOf(r *http.Request, status int, contentType, body string) *http.Response {
	return &http.Response{
		StatusCode: status, Proto: "HTTP/2.0", ProtoMajor: 2, Request: r,
		Header: http.Header{"Content-Type": {contentType}}, Body: io.NopCloser(strings.NewReader(body)),
	}
}

// affects reports whether a request meets the disturbance on that way.
func (d *disturbance) affects(q request, way direction) bool {
	return (way == there && d.there || way == back && d.back) && d.of(q)
}

// slowest returns the longest delay that slow links give a request on that way; 0 is none.
func (n *network) slowest(q request, way direction) (longest time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, d := range n.disturbances {
		if d.affects(q, way) {
			longest = max(longest, d.slowest)
		}
	}
	return longest
}

// draw returns a number that follows from the seed and from which of its kind a request is.
func (n *network) draw(q request, purpose string) uint64 {
	n.mu.Lock()
	n.counts[q]++
	count := n.counts[q]
	n.mu.Unlock()
	h := fnv.New64a()
	fmt.Fprint(h, n.seed, q, purpose, count)
	x := h.Sum64() // FNV leaves the high bits of like inputs alike
	x ^= x >> 33
	x *= 0xff51afd7ed558ccd
	return x ^ x>>33
}

// forget removes the counts of requests, one for each path. Draws begin anew.
func (n *network) forget() {
	n.mu.Lock()
	defer n.mu.Unlock()
	clear(n.counts)
}

// latency returns how long a request, its answer or an event of its watch is on its way. Events
// arrive at once: client-go holds a mutex while it sends some, and simulated time does not pass
// while another goroutine waits for it.
func (n *network) latency(q request, way direction, purpose string) time.Duration {
	if strings.Contains(q.path, "/events") {
		return 0
	}
	x := n.draw(q, purpose)
	d := time.Millisecond + time.Duration(x%uint64(9*time.Millisecond))
	if x>>40%100 == 0 {
		d *= 20
	}
	if slowest := n.slowest(q, way); slowest > 0 {
		d += slowest/4 + time.Duration(n.draw(q, "slow")%uint64(slowest*3/4))
	}
	return d
}

var errBroken = errors.New("connection lost")

// travel sends a request one way. Errors: it does not arrive.
func (n *network) travel(ctx context.Context, dead <-chan struct{}, q request, way direction) error {
	if err := pass(ctx, dead, nil, n.latency(q, way, fmt.Sprint(way))); err != nil {
		return err
	}
	for {
		d := n.meets(q, way)
		if d == nil {
			return nil
		}
		if d.refuses {
			return fmt.Errorf("connection refused: %s", d.name)
		}
		if err := pass(ctx, dead, d.over, brokenAfter); err != nil {
			return err
		}
		select {
		case <-d.over:
		default:
			return errBroken
		}
	}
}

// pass lets some time pass, or less when over is closed.
func pass(ctx context.Context, dead, over <-chan struct{}, d time.Duration) error {
	if d <= 0 {
		return nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-over:
		return nil
	case <-dead:
		return errBroken
	case <-ctx.Done():
		return ctx.Err()
	}
}

// link is the way of a process to an API server.
type link struct {
	*process
	place  string
	server *apiserver.Server
}

var _ http.RoundTripper = (*link)(nil)

func (l *link) about(r *http.Request) request {
	q := request{replica: l.replica, place: l.place, kind: writes, method: r.Method, path: r.URL.Path}
	if r.Method == http.MethodGet {
		q.kind = gets
		query := r.URL.Query()
		last := r.URL.Path[strings.LastIndexByte(r.URL.Path, '/')+1:]
		switch {
		case query.Get("watch") != "":
			q.kind = watches
		case apiserver.IsResource(last):
			q.kind = lists
		}
	}
	return q
}

// RoundTrip sends a request to the server, and returns the answer. If a process is paused between
// the last check of its fence and the send, its request arrives after the pause.
func (l *link) RoundTrip(r *http.Request) (*http.Response, error) {
	q := l.about(r)
	l.sent(q, r)
	wasPaused := l.awaitRunning()
	answer, err := l.exchange(r, q, wasPaused)
	l.awaitRunning()
	return answer, err
}

// exchange sends a request to the server, and returns the answer.
func (l *link) exchange(r *http.Request, q request, wasPaused bool) (*http.Response, error) {
	ctx := r.Context()
	if r.Body != nil {
		body, err := io.ReadAll(r.Body)
		_ = r.Body.Close()
		if err != nil {
			return nil, err
		}
		r = r.Clone(ctx)
		r.Body = io.NopCloser(bytes.NewReader(body))
	}
	n := l.network
	late := n.late(q)
	if wasPaused && q.kind == writes {
		late = max(late, time.Millisecond)
	}
	if late > 0 {
		return l.deliverLate(r, late)
	}
	if err := n.travel(ctx, l.dead, q, there); err != nil {
		return nil, err
	}
	if answer := n.instead(r, q); answer != nil {
		return answer, nil
	}
	if waits := n.queue(true); waits > 0 {
		if err := pass(ctx, l.dead, nil, waits); err != nil {
			return nil, err
		}
	}
	var answer *http.Response
	var err error
	pprof.Do(ctx, pprof.Labels("of", "API servers"), func(context.Context) {
		answer, err = l.server.RoundTrip(r) //nolint:bodyclose // the caller closes it
	})
	if err != nil {
		return nil, err
	}
	if events, ok := answer.Body.(*apiserver.Events); ok {
		l.slow(events, q)
	}
	if n.loses(q) {
		err = errBroken
	} else {
		err = n.travel(ctx, l.dead, q, back)
	}
	if err != nil {
		_ = answer.Body.Close()
		return nil, err
	}
	answer.Body = &body{answer.Body, func(read int) { n.receive(q, read) }}
	return answer, nil
}

// slow delays the events of a watch like the network.
func (l *link) slow(events *apiserver.Events, q request) {
	n, last := l.network, time.Time{}
	events.Lag = func(at time.Time) time.Time {
		d := n.latency(q, back, "event") + n.queue(false)
		n.mu.Lock()
		most := n.lagMost
		n.mu.Unlock()
		if most > 0 && n.draw(q, "lag")%10 == 0 {
			d += time.Duration(n.draw(q, "how late") % uint64(most))
		}
		if at = at.Add(d); at.After(last) {
			last = at
		}
		return last
	}
	events.Delay = func() (<-chan struct{}, time.Duration) {
		if resumed := l.untilResumed(); resumed != nil {
			return resumed, longestPause
		}
		if d := n.meets(q, back); d != nil {
			return d.over, brokenAfter
		}
		return nil, 0
	}
}

// loses reports whether the answer to a write is lost.
func (n *network) loses(q request) bool {
	n.mu.Lock()
	oneIn := n.lossOneIn
	n.mu.Unlock()
	return oneIn > 0 && q.kind == writes && n.draw(q, "loss")%oneIn == 0
}

// late returns for how long a write is delayed.
func (n *network) late(q request) time.Duration {
	n.mu.Lock()
	oneIn := n.lateOneIn
	n.mu.Unlock()
	if oneIn == 0 || q.kind != writes {
		return 0
	}
	if x := n.draw(q, "late"); x%oneIn == 0 {
		return time.Second + time.Duration(x%uint64(40*time.Second))
	}
	return 0
}

// deliverLate delivers a request after some time, also when its sender does not wait any more or
// has died.
func (l *link) deliverLate(r *http.Request, late time.Duration) (*http.Response, error) {
	type result struct {
		answer *http.Response
		err    error
	}
	answered := make(chan result, 1)
	detached := r.WithContext(context.WithoutCancel(r.Context()))
	l.onWire.Go(func() {
		time.Sleep(late)
		answer, err := l.server.RoundTrip(detached) //nolint:bodyclose // closed by who asked
		answered <- result{answer, err}
	})
	select {
	case a := <-answered:
		return a.answer, a.err
	case <-l.dead:
		return nil, errBroken
	case <-r.Context().Done():
		return nil, r.Context().Err()
	}
}

// body counts what is read of an answer.
type body struct {
	io.ReadCloser

	read func(n int)
}

func (b *body) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.read(n)
	return n, err
}
