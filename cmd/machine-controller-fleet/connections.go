package main

import (
	"net"
	"sync"
)

// Connections that are served at a time: Prometheus and the kubelet need a few. The limit for one address is lower, so that no
// client can prevent the liveness probes of a kubelet.
const (
	mostConnections           = 512
	mostConnectionsPerAddress = 64
)

// boundedListener closes new connections beyond the bounds.
type boundedListener struct {
	net.Listener

	mu        sync.Mutex
	all       int
	byAddress map[string]int
}

// boundConnections puts the bounds on a listener.
func boundConnections(l net.Listener) net.Listener {
	return &boundedListener{Listener: l, byAddress: map[string]int{}}
}

// Accept returns the next connection within the bounds.
func (l *boundedListener) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err //nolint:wrapcheck // the server knows the errors of listeners
		}
		address := conn.RemoteAddr().String()
		if host, _, err := net.SplitHostPort(address); err == nil {
			address = host
		}
		if l.admit(address) {
			return &boundedConn{Conn: conn, release: sync.OnceFunc(func() { l.release(address) })}, nil
		}
		_ = conn.Close()
	}
}

func (l *boundedListener) admit(address string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.all >= mostConnections || l.byAddress[address] >= mostConnectionsPerAddress {
		return false
	}
	l.all++
	l.byAddress[address]++
	return true
}

func (l *boundedListener) release(address string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all--
	if l.byAddress[address]--; l.byAddress[address] == 0 {
		delete(l.byAddress, address)
	}
}

// boundedConn makes room for another connection when it is closed.
type boundedConn struct {
	net.Conn

	release func()
}

// Close closes the connection.
func (c *boundedConn) Close() error {
	c.release()
	return c.Conn.Close() //nolint:wrapcheck // it is the connection's
}
