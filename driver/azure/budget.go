package azure

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"github.com/machine-controller-fleet/machine-controller-fleet/driver/httpclient"
)

// Rates are how many requests of each kind a subscription has in an hour, for all clients. They
// matter only while the cloud reports that few are left, or has refused one: until then it is
// assumed that there are more.
type Rates struct{ Reads, Writes, Deletes int }

// DefaultRates are the limits of Azure Resource Manager for a subscription and region.
func DefaultRates() Rates { return Rates{Reads: 12_000, Writes: 1_200, Deletes: 15_000} }

// kind is a class of requests that the cloud counts.
type kind string

const (
	reads   kind = "reads"
	writes  kind = "writes"
	deletes kind = "deletes"
)

// kindOf returns the kind of a request.
func kindOf(method string) kind {
	switch method {
	case http.MethodGet, http.MethodHead:
		return reads
	case http.MethodDelete:
		return deletes
	}
	return writes
}

func (r Rates) of(k kind) int {
	switch k {
	case reads:
		return r.Reads
	case deletes:
		return r.Deletes
	case writes:
		return r.Writes
	}
	return r.Writes
}

// budgetError is a request that was not sent, because the cloud would have refused it.
type budgetError struct {
	kind kind
	wait time.Duration
}

// Error returns a message with the wait.
func (e *budgetError) Error() string {
	return fmt.Sprintf("the subscription has no %s left for this replica; the next one is sent in %s", e.kind, e.wait.Round(time.Millisecond))
}

// maxBudgets is how many budgets are kept. When there are more all are forgotten: the next answer
// of the cloud fills a new one.
const maxBudgets = 4096

// budgets records what is left of the limits of subscriptions, as the cloud's answers report it. A
// request that the cloud would refuse is not sent, and its caller does not wait for its turn: it
// gets the time to wait.
//
// Each replica has its share of what was left at the last answer, and of what the limit adds since.
// The sum over all replicas is the limit of the cloud, so that they need not communicate.
type budgets struct {
	clock clock.PassiveClock
	rates Rates
	share func(context.Context) float64

	mu  sync.Mutex
	all map[budgetKey]*budget
}

type budgetKey struct {
	subscription string
	kind         kind
}

// budget is that of one subscription and kind. Its zero value is one of a cloud that has reported
// nothing yet, and has no limit.
type budget struct {
	// known reports whether the cloud has reported what is left.
	known bool
	// own is how many requests this replica has at the time at. It is at most its share of most.
	own float64
	at  time.Time
	// most is the largest number that the cloud has reported to be left: more than that does not
	// accumulate.
	most int
	// underWay is how many requests have no answer yet.
	underWay int
	// promised is the time that the last one that was refused is to come back.
	promised time.Time
	// blocked is when the cloud accepts requests again, after it has refused one.
	blocked time.Time
}

// longestWait is the longest time in which those that are refused are to come back, one after the
// other. When there are more than that, several come at a time. It is short enough to notice that
// the cloud has more than was assumed.
const longestWait = 3 * time.Minute

// take takes a request from a budget, if that has as many as needed. done is called with its
// answer, or with status 0 if there is none. Errors: *budgetError.
func (b *budgets) take(ctx context.Context, subscription, method string, needed int) (done func(http.Header, int), err error) {
	now, share := b.clock.Now(), min(max(b.share(ctx), 0), 1)
	key := budgetKey{strings.ToLower(subscription), kindOf(method)}
	b.mu.Lock()
	defer b.mu.Unlock()
	own := b.all[key]
	if own == nil {
		if len(b.all) >= maxBudgets {
			clear(b.all)
		}
		own = &budget{}
		b.all[key] = own
	}
	if wait := own.take(now, share, b.every(key.kind, share), float64(needed)); wait > 0 {
		return nil, &budgetError{key.kind, wait}
	}
	return func(header http.Header, status int) {
		now := b.clock.Now()
		b.mu.Lock()
		defer b.mu.Unlock()
		own.answered(header, status, key.kind, now, share)
	}, nil
}

// every returns the time between two requests of a replica with a share.
func (b *budgets) every(k kind, share float64) time.Duration {
	const least = 0.01 // of a replica that has just begun
	return time.Duration(float64(time.Hour) / (float64(max(b.rates.of(k), 1)) * max(share, least)))
}

// take counts a request, or returns how long it has to wait. Those that wait get one time after the
// other.
func (b *budget) take(now time.Time, share float64, every time.Duration, needed float64) (wait time.Duration) {
	if b.known {
		added := float64(now.Sub(b.at)) / float64(every)
		b.own, b.at = min(b.own+max(added, 0), max(float64(b.most)*share, needed)), now
		if b.own < needed || b.blocked.After(now) {
			first := latest(b.blocked, now.Add(time.Duration((needed-b.own)*float64(every))))
			b.promised = latest(first, b.promised.Add(time.Duration(needed*float64(every))))
			if b.promised.Sub(now) > longestWait {
				b.promised = first
			}
			return max(b.promised.Sub(now), time.Millisecond)
		}
		b.own--
	}
	b.underWay++
	return 0
}

// answered notes what an answer reports.
func (b *budget) answered(header http.Header, status int, k kind, now time.Time, share float64) {
	b.underWay--
	left, reported := remaining(header, k)
	refused := status == http.StatusTooManyRequests
	switch {
	case refused:
		b.known, b.own, b.at = true, 0, now
		b.blocked = now.Add(max(httpclient.RetryAfter(header, now), time.Second))
	case reported: // the requests that are under way may not have been counted
		b.known, b.own, b.at, b.most = true, float64(left)*share-float64(b.underWay), now, max(b.most, left)
	case status != 0:
		b.known = false // a cloud that does not report what is left has accepted a request
	}
}

// latest returns the later of two times.
func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// remaining returns the least of what an answer reports to be left: of the subscription, and of
// each limit of the resource provider, as in
// "Microsoft.Compute/PutVM3Min;107,Microsoft.Compute/PutVM30Min;587".
func remaining(header http.Header, k kind) (left int, ok bool) {
	least := func(text string) {
		if n, err := strconv.Atoi(strings.TrimSpace(text)); err == nil && n >= 0 && (!ok || n < left) {
			left, ok = n, true
		}
	}
	least(header.Get("X-Ms-Ratelimit-Remaining-Subscription-" + string(k)))
	for limit := range strings.SplitSeq(header.Get("X-Ms-Ratelimit-Remaining-Resource"), ",") {
		if _, count, found := strings.Cut(limit, ";"); found {
			least(count)
		}
	}
	return left, ok
}
