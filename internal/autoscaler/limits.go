package autoscaler

import (
	"context"
	"sync"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/utils/clock"
	"k8s.io/utils/lru"
)

const (
	// A client sends a call for each Node in a loop, within a second, and a few for each group: these
	// bounds are those of a loop over 10,000 Nodes each 10 s.
	callsPerSecond, callsInBurst = 1000, 10_000
	// Calls that write: a loop resizes each group once, or deletes its Nodes one by one.
	writesPerSecond, writesInBurst = 50, 500
	// callsAtOnce is how many calls of a client are served at a time. As many as a connection has may
	// wait for that: a call that is refused has the client back off. allCallsAtOnce is how many calls
	// are in flight of all clients, those that wait included.
	callsAtOnce, callsWaiting, allCallsAtOnce = 32, maxStreams, 256
	// rememberedClients is how many clients have bounds of their own at a time.
	rememberedClients = 1000
)

// limits bounds the calls in flight, and how many begin in a second. It is safe for concurrent use.
type limits struct {
	clock clock.PassiveClock

	mu       sync.Mutex
	inFlight int
	clients  *lru.Cache
}

// client counts the calls of one client. Its counter is guarded by limits.mu.
type client struct {
	calls, writes flowcontrol.PassiveRateLimiter
	served        chan struct{} // as many as are served
	inFlight      int
}

func newLimits(c clock.PassiveClock) *limits {
	return &limits{clock: c, clients: lru.New(rememberedClients)}
}

// begin admits a call, when it is its turn; done has to be called at its end. Errors: a bound is
// reached; the end of ctx.
func (l *limits) begin(ctx context.Context, who identity, writes bool) (done func(), err error) {
	c, err := l.admit(who, writes)
	if err != nil {
		return nil, err
	}
	left := func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		c.inFlight--
		l.inFlight--
	}
	select {
	case c.served <- struct{}{}:
		return func() {
			<-c.served
			left()
		}, nil
	case <-ctx.Done():
		left()
		return nil, ctx.Err()
	}
}

// admit counts a call as in flight. Errors: a bound is reached.
func (l *limits) admit(who identity, writes bool) (*client, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := l.of(who)
	switch {
	case !c.calls.TryAccept():
		return nil, tooMany("expected at most %d calls a second of %s, got more; increase --scan-interval", callsPerSecond, who.user())
	case writes && !c.writes.TryAccept():
		return nil, tooMany("expected at most %d changes of sizes a second of %s, got more; try again", writesPerSecond, who.user())
	case c.inFlight >= callsAtOnce+callsWaiting:
		return nil, tooMany("expected at most %d calls of %s at a time, got more; wait for their answers", callsAtOnce+callsWaiting, who.user())
	case l.inFlight >= allCallsAtOnce:
		return nil, tooMany("expected at most %d calls of all clients at a time, got more; try again", allCallsAtOnce)
	}
	c.inFlight++
	l.inFlight++
	return c, nil
}

func (l *limits) of(who identity) *client {
	if known, ok := l.clients.Get(who); ok {
		if c, ok := known.(*client); ok {
			return c
		}
	}
	c := &client{
		served: make(chan struct{}, callsAtOnce),
		calls:  flowcontrol.NewTokenBucketPassiveRateLimiterWithClock(callsPerSecond, callsInBurst, l.clock),
		writes: flowcontrol.NewTokenBucketPassiveRateLimiterWithClock(writesPerSecond, writesInBurst, l.clock),
	}
	l.clients.Add(who, c)
	return c
}

func tooMany(format string, args ...any) error {
	return status.Errorf(codes.ResourceExhausted, format, args...)
}
