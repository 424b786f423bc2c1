package connection

import (
	"context"
	"io"
	"net"
	"sync"
	"time"
)

const (
	// overheadPerSecond and overheadAtOnce bound how fast bytes are received that belong to no answer,
	// such as frames of HTTP/2 that a server sends at any time, each of which costs time. What was
	// received and not yet read counts, too; there is at most maxAllUnread of it, and what TLS adds.
	// Each answer permits headerBytes more.
	overheadPerSecond, overheadAtOnce = 256 << 10, 2 * maxAllUnread
	headerBytes                       = 4 << 10
	// dialsPerSecond and dialsAtOnce bound how fast connections are opened: each takes some
	// milliseconds for TLS, and tens with a large client key. One is enough for HTTP/2.
	dialsPerSecond, dialsAtOnce = 2, maxIdleConns
)

// conns are the network connections of the same credentials.
type conns struct {
	of *Connection

	mu     sync.Mutex
	open   map[*conn]bool
	closed bool
}

func (c *Connection) newConns() *conns { return &conns{of: c, open: map[*conn]bool{}} }

// dial opens a network connection when one may be opened.
func (s *conns) dial(ctx context.Context, network, address string) (net.Conn, error) {
	if err := await(ctx, s.of.clock, func() time.Duration { return s.of.dials.Wait(struct{}{}, s.of.clock.Now()) }); err != nil {
		return nil, err
	}
	s.of.dials.Count(struct{}{}, s.of.clock.Now())
	inner, err := s.of.dial(ctx, network, address)
	if err != nil {
		return nil, err
	}
	c := s.newConn(ctx, inner)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		_ = inner.Close()
		return nil, net.ErrClosed
	}
	s.open[c] = true
	return c, nil
}

// newConn returns the connection over inner, which outlives the request whose context ctx is.
func (s *conns) newConn(ctx context.Context, inner net.Conn) *conn {
	c := &conn{Conn: inner, of: s}
	c.ctx, c.end = context.WithCancel(context.WithoutCancel(ctx))
	return c
}

// close closes all, also those with requests.
func (s *conns) close() {
	s.mu.Lock()
	s.closed = true
	all := s.open
	s.open = map[*conn]bool{}
	s.mu.Unlock()
	for c := range all {
		_ = c.Close()
	}
}

// conn is a network connection.
type conn struct {
	net.Conn

	of  *conns
	ctx context.Context //nolint:containedctx // it ends with Close
	end context.CancelFunc
}

// Close closes it.
func (c *conn) Close() error {
	c.end()
	c.of.mu.Lock()
	delete(c.of.open, c)
	c.of.mu.Unlock()
	return c.Conn.Close()
}

// Read reads on when the bytes so far that belong to no answer allow it.
func (c *conn) Read(p []byte) (int, error) {
	of := c.of.of
	if err := await(c.ctx, of.clock, func() time.Duration { return of.overhead.Wait(struct{}{}, of.clock.Now()) }); err != nil {
		return 0, err
	}
	n, err := c.Conn.Read(p)
	of.overhead.CountTimes(struct{}{}, n, of.clock.Now())
	return n, err
}

// answered is the body of an answer, whose bytes are no overhead.
type answered struct {
	io.ReadCloser

	of *Connection
}

// answeredBy returns the body of an answer that has begun.
func (c *Connection) answeredBy(body io.ReadCloser) io.ReadCloser {
	c.overhead.CountTimes(struct{}{}, -headerBytes, c.clock.Now())
	return &answered{body, c}
}

func (a *answered) Read(p []byte) (int, error) {
	n, err := a.ReadCloser.Read(p)
	a.of.overhead.CountTimes(struct{}{}, -n, a.of.clock.Now())
	return n, err
}
