package serving

import (
	"net"
	"slices"
	"sync"
)

// Connections that are served at a time: Prometheus and the kubelet need a few. The limit for one
// address is lower, so that one client does not take the connections of others.
const (
	mostConnections           = 512
	mostConnectionsPerAddress = 64
)

// boundedListener accepts each new connection. Beyond a bound it closes the oldest connection of
// the address that has the most: a probe of the kubelet ends within milliseconds and never is the
// oldest, and so it is answered while clients use up all connections. A share of connections that
// is reserved for probes could be used up, too, because nothing distinguishes a probe before its
// request.
type boundedListener struct {
	net.Listener

	mu        sync.Mutex
	accepted  uint64
	all       int
	byAddress map[string][]*boundedConn // the oldest first
}

// boundConnections puts the bounds on a listener.
func boundConnections(l net.Listener) net.Listener {
	return &boundedListener{Listener: l, byAddress: map[string][]*boundedConn{}}
}

// Accept returns the next connection.
func (l *boundedListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err //nolint:wrapcheck // the server knows the errors of listeners
	}
	address := conn.RemoteAddr().String()
	if host, _, err := net.SplitHostPort(address); err == nil {
		address = host
	}
	admitted := &boundedConn{Conn: conn, listener: l, address: address}
	if evicted := l.admit(admitted); evicted != nil {
		_ = evicted.Close()
	}
	return admitted, nil
}

// admit adds a connection, and returns the one to close for it; nil within the bounds.
func (l *boundedListener) admit(c *boundedConn) (evicted *boundedConn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.accepted++
	l.all++
	c.number = l.accepted
	l.byAddress[c.address] = append(l.byAddress[c.address], c)
	switch {
	case len(l.byAddress[c.address]) > mostConnectionsPerAddress:
		return l.byAddress[c.address][0]
	case l.all > mostConnections:
		return l.oldestOfMost()
	}
	return nil
}

// oldestOfMost returns the oldest connection of the address that has the most, and of several such
// addresses the oldest of all.
func (l *boundedListener) oldestOfMost() (oldest *boundedConn) {
	most := 0
	for _, conns := range l.byAddress {
		if n := len(conns); n > most || n == most && conns[0].number < oldest.number {
			most, oldest = n, conns[0]
		}
	}
	return oldest
}

func (l *boundedListener) remove(c *boundedConn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	conns := l.byAddress[c.address]
	i := slices.Index(conns, c)
	if i < 0 {
		return // closed before
	}
	l.all--
	if len(conns) == 1 {
		delete(l.byAddress, c.address)
		return
	}
	l.byAddress[c.address] = slices.Delete(conns, i, i+1)
}

// boundedConn makes room for another connection when it is closed.
type boundedConn struct {
	net.Conn

	listener *boundedListener
	address  string
	number   uint64 // of accepted connections
}

// Close closes the connection.
func (c *boundedConn) Close() error {
	c.listener.remove(c)
	return c.Conn.Close() //nolint:wrapcheck // it is the connection's
}
