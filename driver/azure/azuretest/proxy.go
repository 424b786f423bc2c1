package azuretest

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"sync"
	"time"
)

// The names of Azure's endpoints.
const (
	HostManagement = "management.azure.com"
	HostLogin      = "login.microsoftonline.com"
)

const (
	headerTime = 10 * time.Second
	// certificateLife is longer than a test.
	certificateLife = 24 * time.Hour
)

// Proxy is an HTTP proxy on the loopback interface behind which a process finds a Cloud in place of
// Azure, under Azure's names and over HTTPS. So a program that is unchanged, and whose endpoints
// cannot be configured, can be tried:
//
//	HTTPS_PROXY=<URL> SSL_CERT_FILE=<file with Authority> program
//
// It refuses to connect to any other name: nothing leaves the computer. Create it with NewProxy.
type Proxy struct {
	authority   []byte
	listener    net.Listener
	proxy, site *http.Server
	tunnels     chan net.Conn
	closed      chan struct{}
	serving     sync.WaitGroup

	mu    sync.Mutex
	names map[string]bool
	open  map[net.Conn]bool // tunnels
}

// NewProxy serves a cloud under Azure's names, and others.
func NewProxy(ctx context.Context, cloud http.Handler, others ...string) (*Proxy, error) {
	names := append([]string{HostManagement, HostLogin}, others...)
	certificate, err := certificateFor(names, time.Now()) //nolint:forbidigo // clients compare it with the real time
	if err != nil {
		return nil, fmt.Errorf("create a certificate: %w", err)
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listen for requests: %w", err)
	}
	p := &Proxy{
		authority: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate.Certificate[0]}),
		listener:  listener, tunnels: make(chan net.Conn), closed: make(chan struct{}), names: map[string]bool{}, open: map[net.Conn]bool{},
	}
	for _, name := range names {
		p.names[net.JoinHostPort(name, "443")] = true
	}
	quiet := log.New(io.Discard, "", 0) // of connections that tests cut
	p.proxy = &http.Server{Handler: http.HandlerFunc(p.connect), ReadHeaderTimeout: headerTime, ErrorLog: quiet}
	p.site = &http.Server{
		Handler: cloud, ReadHeaderTimeout: headerTime, ErrorLog: quiet, ConnState: p.track,
		TLSConfig: &tls.Config{Certificates: []tls.Certificate{*certificate}, MinVersion: tls.VersionTLS12},
	}
	p.serving.Go(func() { _ = p.proxy.Serve(listener) })
	p.serving.Go(func() { _ = p.site.ServeTLS((*tunnelListener)(p), "", "") })
	return p, nil
}

// URL returns the URL of the proxy.
func (p *Proxy) URL() string { return "http://" + p.listener.Addr().String() }

// Authority returns the certificate that a client has to trust, PEM.
func (p *Proxy) Authority() []byte { return p.authority }

// Cut cuts all connections to the cloud, as a network does that fails. New ones can be opened.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for conn := range p.open {
		_ = conn.Close() // it may have ended
	}
}

// Close ends the proxy and all connections.
func (p *Proxy) Close() error {
	close(p.closed)
	err := errors.Join(p.proxy.Close(), p.site.Close())
	p.serving.Wait()
	return err
}

// connect answers the request for a tunnel.
func (p *Proxy) connect(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodConnect || !p.names[r.Host] {
		http.Error(w, "this proxy leads to Azure's names only", http.StatusForbidden)
		return
	}
	conn, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		http.Error(w, "the connection cannot be taken over", http.StatusInternalServerError)
		return
	}
	if buffered.Reader.Buffered() > 0 { // a client waits for the answer before it sends more
		_ = conn.Close()
		return
	}
	if _, err := io.WriteString(conn, "HTTP/1.1 200 Connection established\r\n\r\n"); err != nil {
		_ = conn.Close()
		return
	}
	select {
	case p.tunnels <- conn:
	case <-p.closed:
		_ = conn.Close()
	}
}

// track notes which tunnels are open.
func (p *Proxy) track(conn net.Conn, state http.ConnState) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch state { //nolint:exhaustive // it is open in all others
	case http.StateNew:
		p.open[conn] = true
	case http.StateClosed:
		delete(p.open, conn)
	}
}

// tunnelListener is the listener of what is connected through the proxy.
type tunnelListener Proxy

// Accept returns the next connection. Errors: net.ErrClosed.
func (l *tunnelListener) Accept() (net.Conn, error) {
	select {
	case conn := <-l.tunnels:
		return conn, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

// Close does nothing: the listener ends with its proxy.
func (*tunnelListener) Close() error { return nil }

// Addr returns the address of the proxy.
func (l *tunnelListener) Addr() net.Addr { return l.listener.Addr() }

// certificateFor returns a certificate for names, signed by itself.
func certificateFor(names []string, now time.Time) (*tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: now.Add(-time.Hour), NotAfter: now.Add(certificateLife), DNSNames: names,
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	raw, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, err
	}
	return &tls.Certificate{Certificate: [][]byte{raw}, PrivateKey: key}, nil
}
