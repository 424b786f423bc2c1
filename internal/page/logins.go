package page

import (
	"net/netip"
	"sync"

	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/utils/clock"
	"k8s.io/utils/lru"
)

const (
	// loginsPerSecond and loginsInBurst bound the logins that are tried from one address.
	loginsPerSecond, loginsInBurst = 1, 10
	// allPerSecond and allInBurst bound those of all clients together.
	allPerSecond, allInBurst = 10, 50
	// mostAddresses is of how many addresses the logins are counted.
	mostAddresses = 1000
	// hostBits is how much of an IPv6 address is counted as one: a host may have all that begin so.
	hostBits = 64
)

// logins bounds the rate of logins, so that an address that tries many does not keep others out.
// It is safe for concurrent use.
type logins struct {
	clock clock.PassiveClock
	all   flowcontrol.PassiveRateLimiter

	mu sync.Mutex
	of *lru.Cache // of each address, its flowcontrol.PassiveRateLimiter
}

func newLogins(c clock.PassiveClock) *logins {
	return &logins{
		clock: c, all: flowcontrol.NewTokenBucketPassiveRateLimiterWithClock(allPerSecond, allInBurst, c), of: lru.New(mostAddresses),
	}
}

// accept reports whether a login from a remote address with a port may be tried.
func (l *logins) accept(remote string) bool {
	return l.address(remote).TryAccept() && l.all.TryAccept()
}

func (l *logins) address(remote string) flowcontrol.PassiveRateLimiter {
	key := addressOf(remote)
	l.mu.Lock()
	defer l.mu.Unlock()
	if found, ok := l.of.Get(key); ok {
		if limiter, ok := found.(flowcontrol.PassiveRateLimiter); ok {
			return limiter
		}
	}
	limiter := flowcontrol.NewTokenBucketPassiveRateLimiterWithClock(loginsPerSecond, loginsInBurst, l.clock)
	l.of.Add(key, limiter)
	return limiter
}

// addressOf returns as what a remote address is counted.
func addressOf(remote string) netip.Prefix {
	parsed, err := netip.ParseAddrPort(remote)
	if err != nil {
		return netip.Prefix{}
	}
	address := parsed.Addr().Unmap().WithZone("")
	prefix, _ := address.Prefix(min(hostBits, address.BitLen())) // a valid number of bits
	return prefix
}
