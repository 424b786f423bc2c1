package serving

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/klog/v2"
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

// dial connects from an address, and returns when the server has accepted the connection and closed
// the one that makes room for it.
func (p *pipes) dial(from string) net.Conn {
	here, there := net.Pipe()
	p.conns <- pipe{there, from}
	synctest.Wait()
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
func serving(t *testing.T, handler http.HandlerFunc, test func(t *testing.T, p *pipes)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		p := &pipes{conns: make(chan net.Conn), done: make(chan struct{})}
		server := newHTTPServer(handler, klog.Background())
		served := make(chan struct{})
		go func() {
			_ = server.Serve(boundConnections(p))
			close(served)
		}()
		test(t, p)
		if err := server.Close(); err != nil {
			t.Error(err)
		}
		<-served
		time.Sleep(time.Second) // the server closes a connection with a refused request 500 ms after its answer
	})
}

func ok(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) }

// A client opens connections and sends nothing. Probes are answered at once, from its address, too.
func TestSilentConnectionsDoNotExhaustThePort(t *testing.T) {
	serving(t, ok, func(t *testing.T, p *pipes) {
		for i := range 1500 {
			p.dial(fmt.Sprint("10.0.0.1:", i))
		}
		for _, from := range []string{"10.0.0.2:1", "10.0.0.1:9999"} {
			probe := p.dial(from)
			if !isOpen(probe) {
				t.Errorf("a probe from %s is not answered", from)
			}
			_ = probe.Close()
		}
	})
}

func TestConnectionsOfOneAddressAreBounded(t *testing.T) {
	serving(t, ok, func(t *testing.T, p *pipes) {
		var conns []net.Conn
		for i := range 2 * mostConnectionsPerAddress {
			conns = append(conns, p.dial(fmt.Sprint("10.0.0.1:", i)))
		}
		for i, c := range conns {
			if open := isOpen(c); open != (i >= mostConnectionsPerAddress) {
				t.Errorf("connection %d of %d is open: %t, want the last %d to be open", i, len(conns), open, mostConnectionsPerAddress)
			}
		}
	})
}

// All connections are in use by addresses that have one each, and the oldest makes room.
func TestAllAddressesTogetherAreBounded(t *testing.T) {
	serving(t, ok, func(t *testing.T, p *pipes) {
		var conns []net.Conn
		for i := range 2 * mostConnections {
			c := p.dial(fmt.Sprintf("10.0.%d.%d:1", i/256, i%256))
			if !isOpen(c) {
				t.Fatalf("connection %d is not answered", i)
			}
			conns = append(conns, c)
		}
		for i, c := range conns {
			if open := isOpen(c); open != (i >= mostConnections) {
				t.Errorf("connection %d of %d is open: %t, want the last %d to be open", i, len(conns), open, mostConnections)
			}
		}
	})
}

// Connections that have ended do not count: the oldest one stays open, however many others there
// have been.
func TestConnectionsThatHaveEndedMakeRoom(t *testing.T) {
	serving(t, ok, func(t *testing.T, p *pipes) {
		reader := p.dial("10.0.0.1:1")
		for i := range 2 * mostConnections {
			_ = p.dial(fmt.Sprintf("10.0.%d.%d:1", 1+i/256, i%256)).Close()
		}
		if !isOpen(reader) {
			t.Error("a connection was closed although all others have ended")
		}
	})
}

// Clients with many addresses take all connections. A reader that has one connection keeps it.
func TestTheAddressWithTheMostConnectionsMakesRoom(t *testing.T) {
	serving(t, ok, func(t *testing.T, p *pipes) {
		reader := p.dial("10.0.0.1:1")
		if !isOpen(reader) {
			t.Fatal("no answer")
		}
		for i := range 4 * mostConnections {
			p.dial(fmt.Sprintf("10.0.1.%d:%d", i%200, i))
		}
		if !isOpen(reader) {
			t.Error("a reader with one connection has lost it to clients with several")
		}
	})
}

// Each connection has a request in flight that does not end.
func TestProbesAreAnsweredWhileReadersUseAllConnections(t *testing.T) {
	inFlight, endless := 0, make(chan struct{})
	readers := func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/livez" {
			return
		}
		inFlight++
		select {
		case <-endless:
		case <-r.Context().Done():
		}
	}
	serving(t, readers, func(t *testing.T, p *pipes) {
		endless = make(chan struct{})
		for i := range mostConnections {
			c := p.dial(fmt.Sprintf("10.0.0.%d:%d", i%8, i))
			if _, err := fmt.Fprint(c, "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		if inFlight != mostConnections {
			t.Fatalf("%d requests are in flight, want %d", inFlight, mostConnections)
		}
		for _, from := range []string{"10.0.0.1:9999", "10.0.1.1:1"} {
			if !isOpen(p.dial(from)) {
				t.Errorf("a probe from %s is not answered", from)
			}
		}
		close(endless)
	})
}

func TestIdleConnectionsAreClosed(t *testing.T) {
	serving(t, ok, func(t *testing.T, p *pipes) {
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

// A client sends its request, or reads the answer, one byte in a second.
func TestSlowClientsAreDisconnected(t *testing.T) {
	long := func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(make([]byte, 1<<20)) }
	for name, tc := range map[string]struct {
		request string
		slow    func(c net.Conn) error
		atMost  time.Duration
	}{
		"request": {"GET /metrics HTTP/1.1\r\n", func(c net.Conn) error {
			_, err := fmt.Fprint(c, "x")
			return err
		}, 12 * time.Second},
		"answer": {"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n", func(c net.Conn) error {
			_, err := c.Read(make([]byte, 1))
			return err
		}, 32 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			serving(t, long, func(t *testing.T, p *pipes) {
				c := p.dial("10.0.0.1:1")
				if _, err := fmt.Fprint(c, tc.request); err != nil {
					t.Fatal(err)
				}
				if name == "request" {
					go func() { _, _ = io.Copy(io.Discard, c) }()
				}
				start := time.Now()
				for tc.slow(c) == nil {
					time.Sleep(time.Second)
				}
				if lasted := time.Since(start); lasted > tc.atMost {
					t.Errorf("the connection was closed after %s, want at most %s", lasted, tc.atMost)
				}
			})
		})
	}
}

func TestLongHeadersAreRefused(t *testing.T) {
	serving(t, ok, func(t *testing.T, p *pipes) {
		c := p.dial("10.0.0.1:1")
		go func() {
			_, _ = fmt.Fprintf(c, "GET /livez HTTP/1.1\r\nHost: x\r\nX: %s\r\n\r\n", strings.Repeat("x", 32<<10))
		}()
		resp, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if resp.StatusCode != http.StatusRequestHeaderFieldsTooLarge {
			t.Errorf("status %d, want 431", resp.StatusCode)
		}
		_ = c.Close()
	})
}
