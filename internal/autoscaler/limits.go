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
	// are in flight of all clients that may scale, those that wait included. The last of them are for
	// clients that have fewer than shareOfClient, so that a few clients cannot take all.
	callsAtOnce, callsWaiting, allCallsAtOnce = 32, maxStreams, 256
	sharedCalls, shareOfClient                = 64, 8
	// rememberedClients is how many clients have bounds of their own at a time.
	rememberedClients = 1000
)

// limits bounds the calls in flight, and how many begin in a second. A client is a namespace with
// all of its ServiceAccounts, which may be many. It is safe for concurrent use.
type limits struct {
	clock clock.PassiveClock

	mu       sync.Mutex
	inFlight int // of clients that may scale
	clients  *lru.Cache
}

// client counts the calls of one client. Its counters are guarded by limits.mu.
type client struct {
	limits           *limits
	namespace        string
	calls, writes    flowcontrol.PassiveRateLimiter
	served           chan struct{} // as many as are served
	inFlight, counts int           // of them those that count for all clients
}

func newLimits(c clock.PassiveClock) *limits {
	return &limits{clock: c, clients: lru.New(rememberedClients)}
}

// admit counts a call as one of its client, which may be one that may do nothing. leave has to be
// called at its end. Errors: a bound is reached.
func (l *limits) admit(who identity, writes bool) (*client, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := l.of(who.namespace)
	switch {
	case !c.calls.TryAccept():
		return nil, tooMany("expected at most %d calls a second of namespace %s, got more; increase --scan-interval", callsPerSecond, c.namespace)
	case writes && !c.writes.TryAccept():
		return nil, tooMany("expected at most %d changes of sizes a second of namespace %s, got more; try again", writesPerSecond, c.namespace)
	case c.inFlight >= callsAtOnce+callsWaiting:
		return nil, tooMany("expected at most %d calls of namespace %s at a time, got more; wait for their answers",
			callsAtOnce+callsWaiting, c.namespace)
	}
	c.inFlight++
	return c, nil
}

func (c *client) leave() {
	c.limits.mu.Lock()
	defer c.limits.mu.Unlock()
	c.inFlight--
}

// begin counts an admitted call of a client that may scale for all clients, and waits until it is
// its turn; done has to be called at its end. Errors: a bound is reached; the end of ctx.
func (c *client) begin(ctx context.Context) (done func(), err error) {
	if !c.count() {
		return nil, tooMany("expected at most %d calls of all clients at a time, got more; try again", allCallsAtOnce)
	}
	select {
	case c.served <- struct{}{}:
		return func() {
			<-c.served
			c.discount()
		}, nil
	case <-ctx.Done():
		c.discount()
		return nil, ctx.Err()
	}
}

func (c *client) count() bool {
	c.limits.mu.Lock()
	defer c.limits.mu.Unlock()
	most := allCallsAtOnce
	if c.counts >= shareOfClient {
		most -= sharedCalls
	}
	if c.limits.inFlight >= most {
		return false
	}
	c.counts++
	c.limits.inFlight++
	return true
}

func (c *client) discount() {
	c.limits.mu.Lock()
	defer c.limits.mu.Unlock()
	c.counts--
	c.limits.inFlight--
}

func (l *limits) of(namespace string) *client {
	if known, ok := l.clients.Get(namespace); ok {
		if c, ok := known.(*client); ok {
			return c
		}
	}
	c := &client{
		limits: l, namespace: namespace, served: make(chan struct{}, callsAtOnce),
		calls:  flowcontrol.NewTokenBucketPassiveRateLimiterWithClock(callsPerSecond, callsInBurst, l.clock),
		writes: flowcontrol.NewTokenBucketPassiveRateLimiterWithClock(writesPerSecond, writesInBurst, l.clock),
	}
	l.clients.Add(namespace, c)
	return c
}

func tooMany(format string, args ...any) error {
	return status.Errorf(codes.ResourceExhausted, format, args...)
}
