package cloudsim

import (
	"encoding/json"
	"errors"
	"io"
	"math"
	"net/http"
	"strconv"
	"time"

	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/simulated/cloudapi"
)

const (
	// maxBody bounds the body of a request.
	maxBody = 1 << 20
	// maxHold bounds how long a call that will never be answered is kept.
	maxHold = time.Minute
)

// request is a call that was read and can be carried out.
type request struct {
	// zone of the object of the call, for faults; "" for none.
	zone string
	// about records the object of the call in call, as far as the request names it; nil for calls
	// without an object. A call that fails by a fault is not processed further.
	about func(call *cloudapi.Call)
	// partly carries out the first part of the call, for cloudapi.FaultPartial; nil if the call has no
	// parts.
	partly func(call *cloudapi.Call) error
	// do carries the call out and returns what the caller gets after latency. It records in call its
	// object, and whether it changed anything.
	do func(latency time.Duration, call *cloudapi.Call) (any, error)
}

// reader reads a call of one operation.
type reader func(r *http.Request) (request, error)

// outcome is the answer to a caller.
type outcome struct {
	body    any
	refused *refusal
	// unanswered reports whether the caller gets no answer, after hold.
	unanswered bool
	hold       time.Duration
}

// handle returns the handler of an operation. The operation takes effect whether or not the caller
// waits for the answer.
func (c *Cloud) handle(op cloudapi.Operation, read reader) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		call := &cloudapi.Call{ID: c.lastCall.Add(1), Start: c.cfg.Clock.Now(), Caller: r.UserAgent(), Operation: op}
		out := c.carryOut(op, read, r, call)
		if out.unanswered {
			c.hold(r, out.hold)
		}
		call.End = c.cfg.Clock.Now()
		switch {
		case out.unanswered:
			call.Error = cloudapi.CallTimeout
		case out.refused != nil:
			call.Status, call.Error = status(out.refused.code), string(out.refused.code)
		default:
			call.Status = http.StatusOK
		}
		c.logCall(*call)
		if out.unanswered {
			panic(http.ErrAbortHandler) // The only way to end a request without an answer.
		}
		answer(w, out)
	}
}

// carryOut does all of a call except for its log and its answer.
func (c *Cloud) carryOut(op cloudapi.Operation, read reader, r *http.Request, call *cloudapi.Call) outcome {
	settings := c.currentSettings()
	if settings.Credentials != "" && r.Header.Get("Authorization") != "Bearer "+settings.Credentials {
		return outcome{refused: refuse(cloudapi.CodeUnauthorized, "expected the token of this cloud as bearer token")}
	}
	r.Body = http.MaxBytesReader(nil, r.Body, maxBody)
	req, err := read(r)
	if err != nil {
		return c.refused(err)
	}
	if req.about != nil {
		req.about(call)
	}
	latency := c.dice.duration(settings.Latency[op])
	fault := c.dice.fault(settings.Faults, op, req.zone)
	if fault != nil && isBefore(fault.Kind) {
		if fault.Kind != cloudapi.FaultThrottled { // A cloud that throttles does so at once.
			c.wait(latency)
		}
		if fault.Kind == cloudapi.FaultPartial && req.partly != nil {
			if err := req.partly(call); err != nil {
				return c.refused(err)
			}
		}
		return c.faulty(fault)
	}
	body, err := req.do(latency, call)
	c.wait(latency)
	switch {
	case fault != nil:
		return c.faulty(fault)
	case err != nil:
		return c.refused(err)
	default:
		return outcome{body: body}
	}
}

func (c *Cloud) faulty(fault *cloudapi.Fault) outcome {
	if refused := refusalFor(fault); refused != nil {
		return outcome{refused: refused}
	}
	return outcome{unanswered: true, hold: time.Duration(fault.Hold)}
}

func (c *Cloud) refused(err error) outcome {
	if r, ok := errors.AsType[*refusal](err); ok {
		return outcome{refused: r}
	}
	c.cfg.Log.Error("A call failed inside the cloud", "err", err)
	return outcome{refused: refuse(cloudapi.CodeInternal, "%v", err)}
}

// logCall logs a call, and removes it from the store. If it cannot be logged, it is logged after
// the next start.
func (c *Cloud) logCall(call cloudapi.Call) {
	if err := c.log.write(call); err != nil {
		c.cfg.Log.Error("A call was not logged", "call", call.ID, "err", err)
		return
	}
	if call.Changed {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.logged = append(c.logged, call.ID)
	}
}

// wait waits, unless the cloud closes.
func (c *Cloud) wait(d time.Duration) {
	if d <= 0 {
		return
	}
	timer := c.cfg.Clock.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C():
	case <-c.closing:
	}
}

// hold keeps the caller of an unanswered call waiting for d; 0 is until it disconnects.
func (c *Cloud) hold(r *http.Request, d time.Duration) {
	if d <= 0 || d > maxHold {
		d = maxHold
	}
	timer := c.cfg.Clock.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C():
	case <-r.Context().Done():
	case <-c.closing:
	}
}

// answer writes the answer to the caller. Whether it arrives does not matter any more.
func answer(w http.ResponseWriter, out outcome) {
	code, body := http.StatusOK, out.body
	if r := out.refused; r != nil {
		code = status(r.code)
		body = cloudapi.ErrorBody{Code: r.code, Message: r.message, RetryAfterSeconds: r.retryAfter.Seconds()}
		if r.retryAfter > 0 {
			w.Header().Set("Retry-After", strconv.Itoa(int(math.Ceil(r.retryAfter.Seconds()))))
		}
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(body)
}

// decode reads the body of a request; unknown fields are rejected, as by real clouds.
func decode(r *http.Request, into any) error {
	decoder := json.NewDecoder(r.Body)
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(into); err != nil {
		return invalid("the body cannot be read: %v", err)
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return invalid("the body has more than one JSON value")
	}
	return nil
}
