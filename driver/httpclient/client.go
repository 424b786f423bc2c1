package httpclient

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"
)

// Limits bound one answer.
type Limits struct {
	// Bytes of the body, as they are after decompression.
	Bytes int64
	// Values of JSON in the body: a two-byte {} may become a struct of a kilobyte, so that bytes alone
	// bound no memory.
	Values int
}

// One returns the limits of an answer about one thing. A VM with its console and tags is some KiB
// and some hundred values.
func One() Limits { return Limits{Bytes: 1 << 20, Values: 10_000} }

// Page returns the limits of one page of a list: 1,000 things of up to 8 KiB and 128 values.
func Page() Limits { return Limits{Bytes: 8 << 20, Values: 128_000} }

const (
	// maxConnections to one host. It is more than the objects that a replica works on at a time by
	// default (200), each of which sends one request: the requests that wait for a slow cloud are
	// bounded, and a fast cloud delays none.
	maxConnections = 256
	// maxIdle connections are kept to one host, for idleTime: batches of machines are created
	// together.
	maxIdle  = 100
	idleTime = 90 * time.Second
	// maxHeader bounds the header of an answer; Go's default is 10 MiB.
	maxHeader = 64 << 10
	// handshakeTime bounds the opening of a connection.
	handshakeTime = 10 * time.Second

	// small is how many bytes of an answer are read before it needs one of maxLarge places, and
	// smallValues how many values it may have without one: 256 answers at a time take 16 MiB so, and
	// decoded, at up to a KiB for each value, 128 MiB.
	small       = 64 << 10
	smallValues = 512
	maxLarge    = 4
)

// Transport returns a transport with bounded connections.
func Transport() *http.Transport {
	dialer := &net.Dialer{Timeout: handshakeTime}
	return &http.Transport{
		Proxy: http.ProxyFromEnvironment, DialContext: dialer.DialContext, ForceAttemptHTTP2: true,
		MaxConnsPerHost: maxConnections, MaxIdleConnsPerHost: maxIdle, MaxIdleConns: maxIdle, IdleConnTimeout: idleTime,
		MaxResponseHeaderBytes: maxHeader, TLSHandshakeTimeout: handshakeTime,
	}
}

// requestTimeout bounds a call whose context has no deadline.
const requestTimeout = 30 * time.Second

// Bounded returns a context with a deadline: its own, or one in 30 s.
func Bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, has := ctx.Deadline(); has {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, requestTimeout)
}

// Client sends requests of one driver. It is safe for concurrent use.
type Client struct {
	http  *http.Client
	large chan struct{} // a place for each large answer
}

// New returns a Client on a transport; nil stands for Transport().
func New(transport http.RoundTripper) *Client {
	if transport == nil {
		transport = Transport()
	}
	return &Client{
		http: &http.Client{
			Transport:     transport,
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
		large: make(chan struct{}, maxLarge),
	}
}

// CloseIdleConnections closes the connections that no request uses.
func (c *Client) CloseIdleConnections() { c.http.CloseIdleConnections() }

// Answer is an answer of a cloud, with any status.
type Answer struct {
	Status int
	Header http.Header
	Body   []byte
}

// LimitError is an answer that is larger than its limits. It was not decoded, so the effect of the
// request is not known.
type LimitError struct {
	What  string
	Limit int64
}

// Error returns a message with the limit.
func (e *LimitError) Error() string {
	return fmt.Sprintf("the answer has more than %d %s, and was not read", e.Limit, e.What)
}

// RedirectError is an answer that redirects to another URL.
type RedirectError struct{ Status int }

// Error returns a message with the status, and without the location to which the answer redirects.
func (e *RedirectError) Error() string {
	return fmt.Sprintf("the answer is a redirect (status %d), which is not followed; set the endpoint to the URL of the cloud", e.Status)
}

// Do sends a request and calls use with the answer; the answer is not valid after that. Errors: a
// *LimitError, a *RedirectError, those of net/http, the end of the request's context, and what use
// returns.
func (c *Client) Do(req *http.Request, limits Limits, use func(Answer) error) error {
	resp, err := c.http.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode >= 300 && resp.StatusCode < 400 {
		return &RedirectError{resp.StatusCode}
	}
	body, done, err := c.read(req.Context(), resp, limits)
	if err != nil {
		return err
	}
	defer done()
	return use(Answer{Status: resp.StatusCode, Header: resp.Header, Body: body})
}

// read reads a body. done is to be called when it is not needed any more.
func (c *Client) read(ctx context.Context, resp *http.Response, limits Limits) (body []byte, done func(), err error) {
	tooLarge := &LimitError{"bytes", limits.Bytes}
	if resp.ContentLength > limits.Bytes {
		return nil, nil, tooLarge
	}
	var buffer bytes.Buffer
	read, err := io.Copy(&buffer, io.LimitReader(resp.Body, min(small, limits.Bytes+1)))
	if err != nil {
		return nil, nil, err
	}
	done = func() {}
	if read == small || values(buffer.Bytes()) > smallValues {
		select {
		case c.large <- struct{}{}:
		case <-ctx.Done():
			return nil, nil, ctx.Err()
		}
		done = func() { <-c.large }
		_, err = io.Copy(&buffer, io.LimitReader(resp.Body, limits.Bytes+1-read)) // nothing, if the end has been read
	}
	switch {
	case err != nil:
	case int64(buffer.Len()) > limits.Bytes:
		err = tooLarge
	case values(buffer.Bytes()) > limits.Values:
		err = &LimitError{"values", int64(limits.Values)}
	}
	if err != nil {
		done()
		return nil, nil, err
	}
	return buffer.Bytes(), done, nil
}

// values returns how many values a text of JSON has at most: each but the first begins with a
// bracket, or follows a comma.
func values(text []byte) int {
	count, inString := 1, false
	for i := 0; i < len(text); i++ {
		switch b := text[i]; {
		case b == '"':
			inString = !inString
		case inString && b == '\\':
			i++
		case !inString && (b == ',' || b == '[' || b == '{'):
			count++
		}
	}
	return count
}
