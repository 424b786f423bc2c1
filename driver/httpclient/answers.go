package httpclient

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"time"

	"github.com/machine-controller-fleet/machine-controller-fleet/driver"
)

// CodeOf returns the code for the status of an answer that is not known otherwise: its error code
// is not, or it did not come from the cloud, but from a proxy, for example. Such an answer proves
// nothing about VMs: a 404 is not the absence of one.
func CodeOf(status int) driver.Code {
	switch status {
	case http.StatusUnauthorized, http.StatusProxyAuthRequired:
		return driver.Unauthenticated
	case http.StatusForbidden:
		return driver.PermissionDenied
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable:
		return driver.Unavailable
	case http.StatusRequestTimeout, http.StatusGatewayTimeout:
		return driver.DeadlineExceeded
	}
	return driver.Unknown
}

// CheckPage returns an error for a page of a list with more items than was requested, and for one
// that follows itself. token is that of the page, and next that of the page after it.
func CheckPage(op driver.Op, items, size int, token, next string) error {
	switch {
	case items > size:
		return driver.Errorf(op, driver.Internal, "the cloud listed %d resources on one page; expected at most %d", items, size)
	case next != "" && next == token:
		return driver.Errorf(op, driver.Internal, "the cloud's list does not end: page %q follows itself", next)
	}
	return nil
}

// Response returns the answer to a request as an SDK reads it.
func (a Answer) Response(req *http.Request) *http.Response {
	return &http.Response{
		Status: fmt.Sprintf("%d %s", a.Status, http.StatusText(a.Status)), StatusCode: a.Status, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: a.Header, Body: io.NopCloser(bytes.NewReader(a.Body)), ContentLength: int64(len(a.Body)), Request: req,
	}
}

// ErrorOf returns the error of a call for one of Client.Do, or of what is around it: Unknown for an
// answer that is not used, and by the cause where there is none.
func ErrorOf(ctx context.Context, op driver.Op, err error) *driver.Error {
	const unused = "the cloud's answer is not used, so the effect of the request is not known: %w"
	if limit, ok := errors.AsType[*LimitError](err); ok {
		return driver.Errorf(op, driver.Unknown, unused, limit)
	}
	if redirect, ok := errors.AsType[*RedirectError](err); ok {
		return driver.Errorf(op, driver.Unknown, unused, redirect)
	}
	code := driver.Unavailable
	var timeout net.Error
	switch {
	case errors.Is(ctx.Err(), context.Canceled):
		code = driver.Canceled
	case ctx.Err() != nil, errors.As(err, &timeout) && timeout.Timeout():
		code = driver.DeadlineExceeded
	}
	return driver.Errorf(op, code, "the cloud did not answer: %w", err)
}

// RetryAfter returns for how long an answer requests to wait: at most driver.MaxRetryAfter, and 0
// where it does not say.
func RetryAfter(header http.Header, now time.Time) time.Duration {
	var wait time.Duration
	text := header.Get("Retry-After")
	if seconds, err := strconv.ParseInt(text, 10, 32); err == nil {
		wait = time.Duration(seconds) * time.Second
	} else if at, err := http.ParseTime(text); err == nil {
		wait = at.Sub(now)
	}
	return min(max(wait, 0), driver.MaxRetryAfter)
}
