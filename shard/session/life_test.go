package session

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/klog/v2"

	member "github.com/machine-controller-fleet/machine-controller-fleet/membership"
	"github.com/machine-controller-fleet/machine-controller-fleet/shard/session/protocol"
)

// workers of each process.
const workers = 3

// life is a process of a trial: a whole Replica, work that it does, and the way between it and the
// API server.
type life struct {
	*process

	trial                   *trial
	weather                 weather
	replica, session        string
	pod                     int
	leaving, killed, judged bool                     // asked to leave, killed, looked at when it had ended; they are the root goroutine's
	faultless               atomic.Bool              // no faults any more
	emptied                 atomic.Bool              // it has given up its session Lease
	gone                    chan struct{}            // closed when the process has ended
	err                     error                    // with what Run has returned
	inFlight                [trialSlots]atomic.Int32 // counted here, and not by the Fence

	mu                   sync.Mutex
	random               *rand.Rand
	cutUntil, stuckUntil time.Time
	deaf                 int       // work in flight that goes on when it is cancelled
	deafUntil            time.Time // when the last of it has ended
}

// newLife begins a process.
func newLife(r *trial, replica, random string) *life {
	l := &life{
		trial: r, weather: r.weather, replica: replica, session: member.Identity(replica, random), gone: make(chan struct{}),
		random: rand.New(rand.NewPCG(r.seed, uint64(len(r.lives)+1))),
	}
	// The file lock of the pod is free when the last process of the pod has ended.
	l.pod = len(r.lives)
	for _, other := range r.lives {
		if other.replica == replica && !other.alive() && r.random.IntN(2) == 0 {
			l.pod = other.pod
		}
	}
	for _, other := range r.lives {
		if other.alive() && other.pod == l.pod {
			l.pod = len(r.lives)
		}
	}
	config := r.server.Config()
	config.Transport = &network{life: l, next: config.Transport}
	l.process = beginOn(klog.NewContext(r.Context(), klog.Logger{}), r.T, config, replica, func(s *protocol.Settings) {
		s.Session, s.Slots, s.PodUID, s.Exclusive = l.session, trialSlots, fmt.Sprint("pod-", l.pod), true
	})
	go func() {
		err := <-l.ended
		l.end(err)
	}()
	for range workers {
		r.onWire.Go(l.work)
	}
	return l
}

// end notes how the process has ended.
func (l *life) end(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.alive() {
		return
	}
	l.err = err
	close(l.gone)
}

// couldNotStop reports whether work was in flight that does not end when it is cancelled: when Run
// returned, or when it began to, since it waits for what it has sent.
func (l *life) couldNotStop() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.deaf > 0 || time.Since(l.deafUntil) < 5*time.Second
}

// ignoresCancel notes work that goes on when it is cancelled, until the returned function is
// called.
func (l *life) ignoresCancel() (ended func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.deaf++
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.deaf--
		l.deafUntil = time.Now()
	}
}

func (l *life) alive() bool {
	select {
	case <-l.gone:
		return false
	default:
		return true
	}
}

// owns reports whether the process may begin something for a slot.
func (l *life) owns(slot int) bool {
	return l.alive() && l.fence.Slot(slot).Held && l.fence.Acts()
}

// cut and stick are until when nothing, or nothing of a watch, gets through.
func (l *life) cut(until time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cutUntil = until
}

func (l *life) stick(until time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stuckUntil = until
}

func (l *life) draw(n int) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.random.IntN(n)
}

// oneIn is true once in n times while there are faults; never for 0.
func (l *life) oneIn(n int) bool { return n > 0 && !l.faultless.Load() && l.draw(n) == 0 }

func (l *life) between(least, most time.Duration) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return between(l.random, least, most)
}

// network is the way from a process to the API server. It delays and loses; what is on it arrives,
// regardless of what becomes of its sender.
type network struct {
	*life

	next http.RoundTripper
}

// CloseIdleConnections does nothing: there are no connections.
func (*network) CloseIdleConnections() {}

func (n *network) RoundTrip(r *http.Request) (*http.Response, error) {
	watches := r.URL.Query().Get("watch") != ""
	if watches { // all else has a deadline
		ctx, cancel := context.WithCancel(r.Context())
		unanswered := time.AfterFunc(30*time.Second, cancel) // as a kernel does in the end
		defer unanswered.Stop()
		r = r.WithContext(ctx)
	}
	n.mu.Lock()
	isCut := time.Now().Before(n.cutUntil)
	n.mu.Unlock()
	if isCut || !n.alive() {
		select {
		case <-r.Context().Done():
		case <-n.gone:
		}
		return nil, io.ErrUnexpectedEOF
	}
	if !watches {
		return n.send(r)
	}
	answer, err := n.next.RoundTrip(r)
	if err == nil {
		answer.Body = &stickyBody{ReadCloser: answer.Body, life: n.life, ctx: r.Context()}
	}
	return answer, err
}

// send sends a copy of a request, which outlives its sender.
func (n *network) send(r *http.Request) (*http.Response, error) {
	there, back := n.between(0, 10*time.Millisecond), n.between(0, 10*time.Millisecond)
	if n.oneIn(n.weather.slowOneIn) {
		there = n.between(0, 30*time.Second)
	}
	if n.oneIn(n.weather.slowOneIn) {
		back = n.between(0, 3*time.Second)
	}
	lost := n.oneIn(n.weather.lossOneIn)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), time.Minute)
	sent := r.Clone(ctx)
	lease := &coordinationv1.Lease{}
	if r.Body != nil {
		body, err := io.ReadAll(r.Body)
		if err == nil {
			lease, err = leaseIn(body)
		}
		if err != nil {
			cancel()
			return nil, err
		}
		sent.Body = io.NopCloser(bytes.NewReader(body))
	}
	type result struct {
		answer *http.Response
		err    error
	}
	came := make(chan result, 1)
	n.trial.onWire.Go(func() {
		defer cancel()
		time.Sleep(there)
		answer, err := n.next.RoundTrip(sent) //nolint:bodyclose // it is in memory
		if err == nil && answer.StatusCode == http.StatusOK && lease.Name == member.SessionLeaseName("fleet", n.replica) {
			n.emptied.Store(member.Holder(lease) == "")
		}
		time.Sleep(back)
		if !lost {
			came <- result{answer, err}
		}
	})
	select {
	case c := <-came:
		return c.answer, c.err
	case <-r.Context().Done():
		return nil, r.Context().Err()
	}
}

// stickyBody delivers what comes from a watch, some time later.
type stickyBody struct {
	io.ReadCloser

	life *life
	ctx  context.Context //nolint:containedctx // that of the request
}

func (b *stickyBody) Read(p []byte) (int, error) {
	read, err := b.ReadCloser.Read(p)
	for wait := b.life.between(0, 20*time.Millisecond); wait > 0; {
		select {
		case <-time.After(wait):
		case <-b.ctx.Done():
			return read, b.ctx.Err()
		case <-b.life.gone:
			return read, io.ErrUnexpectedEOF
		}
		b.life.mu.Lock()
		wait = min(time.Until(b.life.stuckUntil), time.Second)
		b.life.mu.Unlock()
	}
	return read, err
}

// work begins work of slots until the process ends.
func (l *life) work() {
	for {
		select {
		case <-l.gone:
			return
		case <-time.After(l.between(20*time.Millisecond, 500*time.Millisecond)):
		}
		slot := l.draw(trialSlots)
		ctx, done, ok := l.fence.Admit(context.Background(), slot)
		if !ok {
			continue
		}
		l.inFlight[slot].Add(1)
		l.trial.admitted(l, slot)
		l.pass(ctx, slot, done)
	}
}

// pass sends something at its beginning and something at its end, of which the answer may be open
// for longer.
func (l *life) pass(ctx context.Context, slot int, done func()) {
	if answer := l.call(ctx, slot); answer != nil {
		_ = answer.Close()
	}
	takes, cancelled := l.between(time.Millisecond, 2*time.Second), ctx.Done()
	if l.oneIn(l.weather.deafOneIn) {
		takes, cancelled = l.between(time.Second, 100*time.Second), nil
		defer l.ignoresCancel()()
	}
	select {
	case <-time.After(takes):
	case <-cancelled:
	case <-l.gone:
	}
	if answer := l.call(ctx, slot); answer != nil {
		done()
		select {
		case <-time.After(l.between(0, 100*time.Millisecond)):
		case <-l.gone:
		}
		done = func() { _ = answer.Close() }
	}
	l.inFlight[slot].Add(-1)
	done()
}

// call sends a request through the Fence, and returns the open body of its answer, or nil when it
// was refused.
func (l *life) call(ctx context.Context, slot int) io.Closer {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://cloud/", http.NoBody)
	if err != nil {
		l.trial.fail("%v", err)
		return nil
	}
	answer, err := l.fence.Transport(cloudOf{l, slot}).RoundTrip(request)
	l.trial.count(err == nil)
	if err != nil {
		return nil
	}
	return answer.Body
}

// cloudOf changes a slot's cloud for a process. No other process may be entitled to the slot when
// something arrives.
type cloudOf struct {
	*life

	slot int
}

func (c cloudOf) RoundTrip(r *http.Request) (*http.Response, error) {
	for _, other := range c.trial.others(c.life) {
		if other.owns(c.slot) && c.alive() {
			c.trial.fail("slot %d: %s acts while %s owns it", c.slot, c.session, other.session)
		}
	}
	return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(bytes.NewReader(nil)), Request: r}, nil
}
