package requests

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"github.com/machine-controller-fleet/machine-controller-fleet/internal/runner"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/target/requests/budget"
)

// Wrap returns a transport whose requests are sent within the budget.
func (b *Budget) Wrap(next http.RoundTripper) http.RoundTripper { return &transport{b, next} }

// transport is the http.RoundTripper.
type transport struct {
	budget *Budget
	next   http.RoundTripper
}

// WrappedRoundTripper returns the transport below, through which client-go finds the connections to
// close.
func (t *transport) WrappedRoundTripper() http.RoundTripper { return t.next }

// RoundTrip sends a request, if it may be sent now. An answer has no Retry-After, for which
// client-go would block the caller. Errors: *RefusedError, no answer in time, those of the
// transport below.
func (t *transport) RoundTrip(r *http.Request) (*http.Response, error) {
	kind := budget.Write
	if r.Method == http.MethodGet {
		kind = budget.Read
	}
	probe, err := t.budget.begin(kind)
	if err != nil {
		if r.Body != nil {
			_ = r.Body.Close()
		}
		return nil, err
	}
	ctx, cancel := context.WithCancel(r.Context())
	outcome := budget.Outcome{}
	call := &call{
		caller: r.Context(), ctx: ctx, cancel: cancel, timer: t.budget.all.cfg.Clock.AfterFunc(Timeout, cancel),
		ended: sync.OnceFunc(func() { t.budget.end(kind, probe, outcome) }),
	}
	answer, err := t.next.RoundTrip(r.WithContext(ctx))
	if err != nil {
		err = call.describe(err)
		outcome = call.failure(err)
		call.end()
		return nil, err
	}
	evicts := strings.HasSuffix(r.URL.Path, "/eviction")
	outcome = ofStatus(kind, answer.StatusCode, evicts, retryAfter(answer))
	answer.Header.Del("Retry-After")
	if r.URL.Query().Get("watch") != "" && answer.StatusCode == http.StatusOK {
		call.timer.Stop()
		call.ended()
	}
	answer.Body = &body{ReadCloser: answer.Body, call: call, failed: func(err error) { outcome = call.failure(err) }}
	return answer, nil
}

// call is a request that was sent.
type call struct {
	caller context.Context //nolint:containedctx // it ends with the request
	ctx    context.Context //nolint:containedctx // it ends with the request
	cancel context.CancelFunc
	timer  clock.Timer
	ended  func()
}

// describe returns the error of the request, as a timeout if it was not answered in time.
func (c *call) describe(err error) error {
	if c.ctx.Err() != nil && c.caller.Err() == nil {
		return fmt.Errorf("expected an answer of the API server within %s, got none", Timeout)
	}
	return err
}

// failure returns what an error shows: nothing, if the caller has ended the request or it was not
// sent.
func (c *call) failure(err error) budget.Outcome {
	if c.caller.Err() != nil || runner.NotOurs(err) {
		return budget.Outcome{}
	}
	return budget.Outcome{Evidence: budget.Failed, Why: err.Error()}
}

// end releases what the request has.
func (c *call) end() {
	c.timer.Stop()
	c.cancel()
	c.ended()
}

// body ends a call when it is closed.
type body struct {
	io.ReadCloser

	call   *call
	failed func(error)
}

// Read reads on. Errors: no end in time, those of the connection.
func (b *body) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil && err != io.EOF { //nolint:errorlint // as io.Reader defines it
		err = b.call.describe(err)
		b.failed(err)
	}
	return n, err
}

// Close closes the body, and ends the request.
func (b *body) Close() error {
	defer b.call.end()
	return b.ReadCloser.Close()
}

// retryAfter returns the wait that an answer requests, in seconds.
func retryAfter(answer *http.Response) time.Duration {
	seconds, err := strconv.Atoi(cmp.Or(answer.Header.Get("Retry-After"), "0"))
	if err != nil || seconds < 0 {
		return 0
	}
	return time.Duration(min(seconds, int(budget.LongestPause/time.Second))) * time.Second
}

// ofStatus returns what an answer shows. 500 is no evidence of a write, since a webhook of the
// cluster may have failed. evicts means that the request is an eviction, which the server
// refuses with 429 as long as it is not allowed.
func ofStatus(kind budget.Kind, status int, evicts bool, retryAfter time.Duration) budget.Outcome {
	switch {
	case status == http.StatusTooManyRequests && evicts:
	case status == http.StatusInternalServerError && kind == budget.Write:
		return budget.Outcome{}
	case status == http.StatusUnauthorized:
		return budget.Outcome{Evidence: budget.Rejected, Why: "status 401 Unauthorized"}
	case status >= http.StatusInternalServerError, status == http.StatusTooManyRequests, status == http.StatusRequestTimeout:
		return budget.Outcome{Evidence: budget.Failed, Why: fmt.Sprintf("status %d %s", status, http.StatusText(status)), RetryAfter: retryAfter}
	}
	return budget.Outcome{Evidence: budget.Answered}
}
