package serving

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
)

// MutualOptions are the settings of a port whose clients authenticate with certificates.
type MutualOptions struct {
	// Address and Port are where it listens.
	Address string
	Port    int
	// CertFile and KeyFile are files with a certificate and its key, and ClientCAFile one with the
	// certificates of the authorities that sign those of clients. They are read again when they
	// change.
	CertFile, KeyFile, ClientCAFile string
}

// ListenMutual returns a bounded listener, and the settings of TLS for its connections, of HTTP/2:
// a client has to show a certificate that one of the authorities has signed. Errors: the address is
// taken, or a file is invalid.
func ListenMutual(ctx context.Context, o MutualOptions) (net.Listener, *tls.Config, error) {
	log := klog.FromContext(ctx)
	certificate, err := newServingCertificate(o.CertFile, o.KeyFile, clock.RealClock{}, log)
	if err != nil {
		return nil, nil, fmt.Errorf("expected a certificate with its chain, and its key, both PEM: %w", err)
	}
	authorities, err := newClientAuthorities(o.ClientCAFile, clock.RealClock{}, log)
	if err != nil {
		return nil, nil, err
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", net.JoinHostPort(o.Address, strconv.Itoa(o.Port)))
	if err != nil {
		return nil, nil, fmt.Errorf("listen: %w", err)
	}
	return boundConnections(listener), mutualTLS(certificate, authorities), nil
}

// mutualTLS returns settings that use the files as they are at each handshake. A session is never
// resumed: that would not verify the certificate of the client again.
func mutualTLS(certificate *servingCertificate, authorities *clientAuthorities) *tls.Config {
	settings := func(pool *x509.CertPool) *tls.Config {
		return &tls.Config{
			MinVersion: tls.VersionTLS13, NextProtos: []string{"h2"}, GetCertificate: certificate.get, SessionTicketsDisabled: true,
			ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: pool,
		}
	}
	config := settings(authorities.get())
	config.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) { return settings(authorities.get()), nil }
	return config
}

// clientAuthorities are the certificates in a file. A handshake reads it again, and while it is not
// valid, the last valid ones are used.
type clientAuthorities struct {
	file  string
	clock clock.PassiveClock
	log   klog.Logger

	used atomic.Pointer[x509.CertPool]

	mu      sync.Mutex // held while the file is read
	readAt  time.Time
	content []byte // as it was read last
	failing bool
}

// newClientAuthorities reads the file. Errors: it cannot be read, or has no certificate.
func newClientAuthorities(file string, c clock.PassiveClock, log klog.Logger) (*clientAuthorities, error) {
	a := &clientAuthorities{file: file, clock: c, log: log, readAt: c.Now()}
	if _, err := a.read(); err != nil {
		return nil, err
	}
	return a, nil
}

// get returns the certificates for a handshake. One handshake at a time reads the file.
func (a *clientAuthorities) get() *x509.CertPool {
	if a.mu.TryLock() {
		defer a.mu.Unlock()
		a.refresh()
	}
	return a.used.Load()
}

// refresh reads the file if that is due. The caller must hold a.mu.
func (a *clientAuthorities) refresh() {
	now := a.clock.Now()
	if now.Sub(a.readAt) < certificateFresh {
		return
	}
	a.readAt = now
	changed, err := a.read()
	switch {
	case err != nil && !a.failing:
		a.log.Error(err, "Failed to read the authorities of clients; using the previous ones")
	case err == nil && (changed || a.failing):
		a.log.Info("Read the authorities of clients")
	}
	a.failing = err != nil
}

// read reads the file, and reports whether it has changed.
func (a *clientAuthorities) read() (changed bool, err error) {
	content, err := os.ReadFile(a.file)
	if err != nil {
		return false, fmt.Errorf("read the authorities of clients: %w", err)
	}
	if bytes.Equal(content, a.content) {
		return false, nil
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(content) {
		return false, fmt.Errorf("%s: %w", a.file, errNoAuthority)
	}
	a.content = content
	a.used.Store(pool)
	return true, nil
}

var errNoAuthority = errors.New("expected certificates of authorities of clients, PEM, got none")
