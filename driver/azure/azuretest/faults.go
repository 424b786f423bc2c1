package azuretest

import (
	"math"
	"net/http"
	"strconv"
	"time"
)

// Fault is a way in which a cloud fails.
type Fault string

// The faults. LostAnswer and those after it are about the requests that create VMs; all others are
// about all requests.
const (
	// NoAnswer: requests are neither carried out nor answered.
	NoAnswer Fault = "NoAnswer"
	// ServerError: requests are answered by an error of the server.
	ServerError Fault = "ServerError"
	// Throttled: requests are refused with ThrottledFor as time to wait.
	Throttled Fault = "Throttled"
	// Unauthorized and Forbidden: credentials are rejected, or lack a role.
	Unauthorized Fault = "Unauthorized"
	Forbidden    Fault = "Forbidden"
	// LostAnswer: the request is carried out and not answered.
	LostAnswer Fault = "LostAnswer"
	// Quota and NoCapacity: the request is refused.
	Quota      Fault = "Quota"
	NoCapacity Fault = "NoCapacity"
	// PartialCreate: the request fails, after those for the network interface and disks have
	// succeeded.
	PartialCreate Fault = "PartialCreate"
)

// ThrottledFor is the time to wait of Throttled.
const ThrottledFor = 7 * time.Second

// Fail has requests fail until another Fault is set; "" is none.
func (c *Cloud) Fail(fault Fault) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.fault = fault
}

// cut is a connection that is to be cut.
type cut struct {
	at    int // the number of the request, from 1; 0 for none
	after bool
	waits bool // until the client has gone
	done  bool
}

// Cut cuts the connection of one request: the one with that number, counted from now on. After
// reports whether it is carried out before.
func (c *Cloud) Cut(number int, after bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cut = cut{at: c.stats.Requests + number, after: after}
}

// Stop has one request wait until its client has gone: the one with that number, counted from now
// on. After reports whether it is carried out before.
func (c *Cloud) Stop(number int, after bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cut = cut{at: c.stats.Requests + number, after: after, waits: true}
}

// end ends a request without an answer.
func (c cut) end(r *http.Request) func(http.ResponseWriter) {
	return func(http.ResponseWriter) {
		if c.waits {
			<-r.Context().Done()
		}
		panic(http.ErrAbortHandler)
	}
}

// HasCut reports whether the request that was to be cut, or to be stopped, has arrived.
func (c *Cloud) HasCut() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.cut.done
}

// refusal is an answer that is no success.
type refusal struct {
	status        int
	code, message string
	retryAfter    time.Duration
}

// refusalOf returns the refusal that is due to a fault, or nil. It does not matter what the request
// is about.
func refusalOf(fault Fault, makesVM bool) *refusal {
	switch fault {
	case ServerError:
		return &refusal{status: http.StatusInternalServerError, code: "InternalServerError", message: "Encountered internal server error."}
	case Throttled:
		return &refusal{
			http.StatusTooManyRequests, "SubscriptionRequestsThrottled", "Number of requests for subscription exceeded the limit.", ThrottledFor,
		}
	case Unauthorized:
		return &refusal{status: http.StatusUnauthorized, code: "InvalidAuthenticationToken", message: "The access token is invalid."}
	case Forbidden:
		return &refusal{
			status: http.StatusForbidden, code: "AuthorizationFailed", message: "The client does not have authorization to perform the action.",
		}
	case Quota, NoCapacity, PartialCreate:
		if !makesVM {
			return nil
		}
		return map[Fault]*refusal{
			Quota: {
				status:  http.StatusConflict,
				code:    "OperationNotAllowed",
				message: "Operation could not be completed as it results in exceeding approved Total Regional Cores quota.",
			},
			NoCapacity: {
				status:  http.StatusConflict,
				code:    "ZonalAllocationFailed",
				message: "Allocation failed. We do not have sufficient capacity in this zone.",
			},
			PartialCreate: {
				status: http.StatusInternalServerError, code: "InternalExecutionError", message: "An internal execution error occurred.",
			},
		}[fault]
	case NoAnswer, LostAnswer:
	}
	return nil
}

// bucket is the limit of writes of one subscription.
type bucket struct {
	tokens float64
	at     time.Time
}

// throttle takes a write of a subscription, and returns a refusal if there is none. It writes the
// header that reports what is left.
func (c *Cloud) throttle(w http.ResponseWriter, subscription string) *refusal {
	if c.cfg.WritesPerHour == 0 {
		return nil
	}
	now, rate := c.cfg.Clock.Now(), float64(c.cfg.WritesPerHour)/time.Hour.Seconds()
	b := c.buckets[subscription]
	if b == nil {
		b = &bucket{float64(c.cfg.Burst), now}
		c.buckets[subscription] = b
	}
	b.tokens, b.at = min(b.tokens+rate*now.Sub(b.at).Seconds(), float64(c.cfg.Burst)), now
	refused := b.tokens < 1
	if !refused {
		b.tokens--
	}
	w.Header().Set("x-ms-ratelimit-remaining-subscription-writes", strconv.Itoa(int(b.tokens)))
	if !refused {
		return nil
	}
	c.stats.Refused++
	wait := time.Duration(math.Ceil((1-b.tokens)/rate)) * time.Second
	return &refusal{
		http.StatusTooManyRequests, "SubscriptionRequestsThrottled", "Number of write requests for subscription exceeded the limit.", wait,
	}
}
