package main

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"
)

// pipes is a listener whose connections come from addresses that the test names.
type pipes struct {
	conns chan net.Conn
	done  chan struct{}
}

type pipe struct {
	net.Conn

	from string
}

func (p pipe) RemoteAddr() net.Addr { return address(p.from) }

type address string

func (a address) Network() string { return "tcp" }
func (a address) String() string  { return string(a) }

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.done:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error   { close(p.done); return nil }
func (p *pipes) Addr() net.Addr { return address("here:1") }

// dial connects from an address.
func (p *pipes) dial(from string) net.Conn {
	here, there := net.Pipe()
	p.conns <- pipe{there, from}
	return here
}

// isOpen sends a request, and reports whether it was answered within five seconds.
func isOpen(c net.Conn) bool {
	_ = c.SetDeadline(time.Now().Add(5 * time.Second))
	defer func() { _ = c.SetDeadline(time.Time{}) }()
	if _, err := fmt.Fprint(c, "GET /livez HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
		return false
	}
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		return false
	}
	_ = resp.Body.Close()
	return resp.StatusCode == http.StatusOK
}

// serving runs a server as a replica has it.
func serving(t *testing.T, test func(p *pipes)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		p := &pipes{conns: make(chan net.Conn), done: make(chan struct{})}
		server := newHTTPServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) }))
		served := make(chan struct{})
		go func() {
			_ = server.Serve(boundConnections(p))
			close(served)
		}()
		test(p)
		if err := server.Shutdown(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
		<-served
	})
}

// A client opens connections and sends nothing. A probe from another address is answered, and one from the same address is answered
// after the silent connections were closed.
func TestSilentConnectionsDoNotExhaustThePort(t *testing.T) {
	serving(t, func(p *pipes) {
		for i := range 1500 {
			p.dial(fmt.Sprint("10.0.0.1:", i))
		}
		probe := p.dial("10.0.0.2:1")
		if !isOpen(probe) {
			t.Error("a probe from another address is not answered")
		}
		if late := p.dial("10.0.0.1:9999"); isOpen(late) {
			t.Error("a connection beyond the bound is answered")
		}
		time.Sleep(time.Minute)
		again := p.dial("10.0.0.1:10000")
		if !isOpen(again) {
			t.Error("silent connections are kept")
		}
		_, _ = probe.Close(), again.Close()
	})
}

func TestAllAddressesTogetherAreBounded(t *testing.T) {
	serving(t, func(p *pipes) {
		var conns []net.Conn
		answered := 0
		for i := range 2 * mostConnections {
			c := p.dial(fmt.Sprintf("10.0.%d.%d:1", i/256, i%256))
			if isOpen(c) {
				answered++
			}
			conns = append(conns, c)
		}
		if answered != mostConnections {
			t.Errorf("%d connections are served at a time, want %d", answered, mostConnections)
		}
		for _, c := range conns {
			_ = c.Close()
		}
	})
}

func TestIdleConnectionsAreClosed(t *testing.T) {
	serving(t, func(p *pipes) {
		c := p.dial("10.0.0.1:1")
		if !isOpen(c) {
			t.Fatal("no answer")
		}
		time.Sleep(2 * time.Minute)
		if isOpen(c) {
			t.Error("a connection that was idle for two minutes is open")
		}
	})
}
