package connection

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"mime"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/machine-controller-fleet/machine-controller-fleet/internal/pacing"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/target/access"
)

const (
	// MaxBody is the maximum size of an answer that is no watch, in bytes. A page of 500 pods has
	// about 5 MB.
	MaxBody = 16 << 20
	// MaxBodies is the maximum size of all answers of one connection that are being read at a time.
	MaxBodies = 32 << 20
	// MaxEvent is the maximum size of one event of a watch. An object has at most 1.5 MiB.
	MaxEvent = 3 << 20
	// eventsPerSecond and eventsAtOnce bound how fast the events of all watches of one connection
	// are read, in bytes; each event counts eventBytes more, since small ones take as much time as
	// large ones. The server waits meanwhile. 5,000 Nodes have some 350 kB of these a second.
	eventsPerSecond, eventsAtOnce = 512 << 10, 1 << 20
	eventBytes                    = 1 << 10
	// MaxError is the maximum size of an answer that reports a failure: its text is logged.
	MaxError = 16 << 10
	// maxHeader is the maximum size of the header of an answer, in bytes, of which an API server
	// sends less than 2 kB.
	maxHeader = 64 << 10
	// maxUnread are the bytes of one answer, and of all by one connection, that are received before
	// they are read, and so count for no other bound.
	maxUnread, maxAllUnread = 1 << 20, 8 << 20
)

// Durations of a connection: until it is established, until TLS is, until an idle one is closed,
// until one without data is probed, and until it is closed without an answer to that.
const (
	dialTimeout  = 10 * time.Second
	tlsTimeout   = 10 * time.Second
	idleTimeout  = 90 * time.Second
	pingAfter    = 10 * time.Second
	pingTimeout  = 5 * time.Second
	maxIdleConns = 25
)

// Connection is the http.RoundTripper to one API server. New returns one.
type Connection struct {
	policy access.Policy
	clock  clock.Clock
	now    atomic.Pointer[credentials]
	read   inWork
	events *pacing.Rates[struct{}] // bytes of events of all watches

	overhead *pacing.Rates[struct{}] // bytes that belong to no answer
	dials    *pacing.Rates[struct{}]
}

// credentials are an Access with the connections that are authenticated by it.
type credentials struct {
	access    access.Access
	transport *http.Transport
	conns     *conns
	before    *conns // of the credentials before, which have watches and requests until these end
}

// New returns a Connection, which connects with the first request. Errors: certificates that cannot
// be parsed, or are refused.
func New(policy access.Policy, a access.Access, of clock.Clock) (*Connection, error) {
	c := &Connection{
		policy: policy, clock: of, events: pacing.NewRates[struct{}](eventsAtOnce, time.Second/eventsPerSecond),
		overhead: pacing.NewRates[struct{}](overheadAtOnce, time.Second/overheadPerSecond),
		dials:    pacing.NewRates[struct{}](dialsAtOnce, time.Second/dialsPerSecond),
	}
	return c, c.Use(a)
}

// Use has the next requests use other credentials, of the same server and CA. Errors: certificates
// that cannot be parsed, or are refused; then the earlier ones stay. Requests that were sent with
// the last ones continue, and those of the ones before end.
func (c *Connection) Use(a access.Access) error {
	before := c.now.Load()
	if before != nil && before.access.ClientCert == a.ClientCert && before.access.ClientKey == a.ClientKey {
		c.now.Store(&credentials{access: a, transport: before.transport, conns: before.conns, before: before.before})
		return nil
	}
	now := &credentials{access: a, conns: c.newConns()}
	var err error
	if now.transport, err = c.transport(a, now.conns.dial); err != nil {
		return err
	}
	if before != nil {
		now.before = before.conns
	}
	c.now.Store(now)
	if before != nil {
		before.transport.CloseIdleConnections()
		before.closeBefore()
	}
	return nil
}

func (c *credentials) closeBefore() {
	if c.before != nil {
		c.before.close()
	}
}

// Close closes all connections, and ends their requests. A server that goes on sending would keep
// one open that is only idle.
func (c *Connection) Close() {
	now := c.now.Load()
	now.closeBefore()
	now.conns.close()
}

// Config returns a configuration for clients of this connection.
func (c *Connection) Config() *rest.Config {
	return &rest.Config{Host: c.now.Load().access.Server, Transport: c, QPS: -1}
}

// transport returns the connections for credentials.
func (c *Connection) transport(
	a access.Access, dial func(ctx context.Context, network, address string) (net.Conn, error),
) (*http.Transport, error) {
	ca, err := caOf(a.CA)
	if err != nil {
		return nil, err
	}
	verify := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: a.ServerName, RootCAs: ca}
	if a.ClientCert != "" {
		pair, err := clientOf(a.ClientCert, a.ClientKey)
		if err != nil {
			return nil, err
		}
		verify.Certificates = []tls.Certificate{pair}
	}
	transport := &http.Transport{
		DialContext: dial, TLSClientConfig: verify, TLSHandshakeTimeout: tlsTimeout, IdleConnTimeout: idleTimeout,
		MaxIdleConnsPerHost: maxIdleConns, ForceAttemptHTTP2: true,
		MaxResponseHeaderBytes: maxHeader,
		HTTP2: &http.HTTP2Config{
			SendPingTimeout: pingAfter, PingTimeout: pingTimeout, MaxReceiveBufferPerStream: maxUnread, MaxReceiveBufferPerConnection: maxAllUnread,
		},
	}
	if a.Proxy != "" {
		proxy, err := url.Parse(a.Proxy)
		if err != nil {
			return nil, errors.New("expected the URL of a proxy, got something else")
		}
		transport.Proxy = http.ProxyURL(proxy)
	}
	return transport, nil
}

// rooted returns the host of an address as the resolver has to look it up. A name with several
// labels is that of a server in DNS; only that of a Service is completed by the search list of the
// Pod.
func rooted(host string) string {
	labels := strings.Split(host, ".")
	isService := len(labels) > 2 && labels[len(labels)-1] == "svc"
	if _, err := netip.ParseAddr(host); err == nil || len(labels) == 1 || isService || strings.HasSuffix(host, ".") {
		return host
	}
	return host + "."
}

// dial connects to a host, unless it is in a refused network.
func (c *Connection) dial(ctx context.Context, network, address string) (net.Conn, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	dialer := &net.Dialer{Timeout: dialTimeout, Control: func(_, resolved string, _ syscall.RawConn) error {
		to, err := netip.ParseAddrPort(resolved)
		if err == nil && c.policy.Refuses(to.Addr()) {
			return fmt.Errorf("%s is in a network that no target cluster may be in", to.Addr())
		}
		return err
	}}
	return dialer.DialContext(ctx, network, net.JoinHostPort(rooted(host), port))
}

// RoundTrip sends a request with the current credentials. Errors: those of the connection, and an
// answer that redirects to another address.
func (c *Connection) RoundTrip(r *http.Request) (*http.Response, error) {
	now := c.now.Load()
	if now.access.Token != "" {
		r = r.Clone(r.Context())
		r.Header.Set("Authorization", "Bearer "+now.access.Token)
	}
	answer, err := now.transport.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	if location := answer.Header.Get("Location"); location != "" && answer.StatusCode/100 == http.StatusMultipleChoices/100 {
		_ = answer.Body.Close()
		return nil, fmt.Errorf("expected an answer of an API server, got status %d that redirects to another address", answer.StatusCode)
	}
	answer.Body = c.answeredBy(answer.Body)
	answer.Header.Del("Warning")                                             // client-go logs each of them
	encoding, _, _ := mime.ParseMediaType(answer.Header.Get("Content-Type")) // as clients do; they refuse an invalid one
	isProtobuf := encoding == runtime.ContentTypeProtobuf
	if r.URL.Query().Get("watch") != "" && answer.StatusCode == http.StatusOK {
		answer.Body = c.eventsOf(r.Context(), answer.Body, isProtobuf)
	} else {
		most := int64(MaxBody)
		if answer.StatusCode >= http.StatusBadRequest {
			most = MaxError
		}
		answer.Body = c.bodyOf(r.Context(), answer.Body, most, isProtobuf)
	}
	return answer, nil
}
