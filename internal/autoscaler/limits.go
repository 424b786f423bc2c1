package autoscaler

import (
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
	writesPerSecond, writesInBurst = 10, 200
	// callsAtOnce is how many calls of a client are in flight, and allCallsAtOnce those of all.
	callsAtOnce, allCallsAtOnce = 32, 256
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
	inFlight      int
}

func newLimits(c clock.PassiveClock) *limits {
	return &limits{clock: c, clients: lru.New(rememberedClients)}
}

// begin admits a call; done has to be called at its end. Errors: a bound is reached.
func (l *limits) begin(who identity, writes bool) (done func(), err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := l.of(who)
	switch {
	case !c.calls.TryAccept():
		return nil, tooMany("expected at most %d calls a second of %s, got more; increase --scan-interval", callsPerSecond, who.user())
	case writes && !c.writes.TryAccept():
		return nil, tooMany("expected at most %d changes of sizes a second of %s, got more; try again", writesPerSecond, who.user())
	case c.inFlight >= callsAtOnce:
		return nil, tooMany("expected at most %d calls of %s at a time, got more; wait for their answers", callsAtOnce, who.user())
	case l.inFlight >= allCallsAtOnce:
		return nil, tooMany("expected at most %d calls of all clients at a time, got more; try again", allCallsAtOnce)
	}
	c.inFlight++
	l.inFlight++
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		c.inFlight--
		l.inFlight--
	}, nil
}

func (l *limits) of(who identity) *client {
	if known, ok := l.clients.Get(who); ok {
		if c, ok := known.(*client); ok {
			return c
		}
	}
	c := &client{
		calls:  flowcontrol.NewTokenBucketPassiveRateLimiterWithClock(callsPerSecond, callsInBurst, l.clock),
		writes: flowcontrol.NewTokenBucketPassiveRateLimiterWithClock(writesPerSecond, writesInBurst, l.clock),
	}
	l.clients.Add(who, c)
	return c
}

func tooMany(format string, args ...any) error {
	return status.Errorf(codes.ResourceExhausted, format, args...)
}
