package serving

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"math/big"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
)

// certificateFresh is for how long the files of a certificate are not read again.
const certificateFresh = 10 * time.Second

// servingCertificate is the certificate in two files. A handshake reads them again, so that a
// certificate that was renewed is served without a restart; while they are not valid, the last
// valid one is served.
type servingCertificate struct {
	certFile, keyFile string
	clock             clock.PassiveClock
	log               klog.Logger

	served atomic.Pointer[tls.Certificate]

	mu        sync.Mutex // held while the files are read
	readAt    time.Time
	cert, key []byte // as they were read last
	failing   bool
}

// newServingCertificate reads the certificate. Errors: a file cannot be read, or the two are not a
// certificate and its key.
func newServingCertificate(certFile, keyFile string, c clock.PassiveClock, log klog.Logger) (*servingCertificate, error) {
	s := &servingCertificate{certFile: certFile, keyFile: keyFile, clock: c, log: log}
	s.readAt = c.Now()
	if _, err := s.read(); err != nil {
		return nil, err
	}
	return s, nil
}

// config returns the settings of a listener that serves the certificate. There is no HTTP/2: a
// connection has one request at a time, so that the bound on connections is one on requests.
func (s *servingCertificate) config() *tls.Config { return tlsConfig(s.get) }

func tlsConfig(get func(*tls.ClientHelloInfo) (*tls.Certificate, error)) *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS13, NextProtos: []string{"http/1.1"}, GetCertificate: get}
}

// selfSignedFor is for how long a certificate is valid that a process creates for itself: longer
// than a process lives. It is valid before it was created, for clients whose clocks are behind.
const selfSignedFor, selfSignedBefore = 10 * 365 * 24 * time.Hour, 24 * time.Hour

// selfSigned returns a new certificate and its key, which never leaves the process.
func selfSigned(now time.Time) (*tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("generate a key: %w", err)
	}
	of := &x509.Certificate{
		SerialNumber: big.NewInt(now.UnixNano()), Subject: pkix.Name{CommonName: "machine-controller-fleet, self-signed"},
		NotBefore: now.Add(-selfSignedBefore), NotAfter: now.Add(selfSignedFor), ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	encoded, err := x509.CreateCertificate(rand.Reader, of, of, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("sign it: %w", err)
	}
	return &tls.Certificate{Certificate: [][]byte{encoded}, PrivateKey: key}, nil
}

// get returns the certificate for a handshake. One handshake at a time reads the files; the others
// do not wait for it.
func (s *servingCertificate) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	if s.mu.TryLock() {
		defer s.mu.Unlock()
		s.refresh()
	}
	return s.served.Load(), nil
}

// refresh reads the files if that is due. The caller must hold s.mu.
func (s *servingCertificate) refresh() {
	now := s.clock.Now()
	if now.Sub(s.readAt) < certificateFresh {
		return
	}
	s.readAt = now
	changed, err := s.read()
	switch {
	case err != nil && !s.failing:
		s.log.Error(err, "Failed to read the serving certificate; serving the previous one", "notAfter", s.served.Load().Leaf.NotAfter)
	case err == nil && (changed || s.failing):
		s.log.Info("Read the serving certificate", "notAfter", s.served.Load().Leaf.NotAfter)
	}
	s.failing = err != nil
}

// read reads the files, and reports whether they have changed.
func (s *servingCertificate) read() (changed bool, err error) {
	cert, err := os.ReadFile(s.certFile)
	if err != nil {
		return false, fmt.Errorf("read the certificate: %w", err)
	}
	key, err := os.ReadFile(s.keyFile)
	if err != nil {
		return false, fmt.Errorf("read the private key: %w", err)
	}
	if bytes.Equal(cert, s.cert) && bytes.Equal(key, s.key) {
		return false, nil
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return false, fmt.Errorf("%s with %s: %w", s.certFile, s.keyFile, err)
	}
	s.cert, s.key = cert, key
	s.served.Store(&pair)
	return true, nil
}
