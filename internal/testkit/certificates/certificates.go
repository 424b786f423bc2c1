package certificates

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// ServerName is the name of a server in each certificate.
const ServerName = "fleet"

// Signer is a certificate with its key. New returns one.
type Signer struct {
	key *ecdsa.PrivateKey
	raw []byte
	is  *x509.Certificate
}

// New returns a certificate for clients and servers that another one has signed, or that of an
// authority if by is nil.
func New(tb testing.TB, by *Signer, change ...func(*x509.Certificate)) *Signer {
	tb.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		tb.Fatal(err)
	}
	of := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: ServerName}, DNSNames: []string{ServerName},
		NotBefore: time.Unix(0, 0), NotAfter: time.Unix(1<<32, 0),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	if by == nil {
		of.IsCA, of.BasicConstraintsValid, of.KeyUsage = true, true, x509.KeyUsageCertSign
	}
	for _, f := range change {
		f(of)
	}
	parent, signing := of, key
	if by != nil {
		parent, signing = by.is, by.key
	}
	raw, err := x509.CreateCertificate(rand.Reader, of, parent, key.Public(), signing)
	if err != nil {
		tb.Fatal(err)
	}
	is, err := x509.ParseCertificate(raw)
	if err != nil {
		tb.Fatal(err)
	}
	return &Signer{key: key, raw: raw, is: is}
}

// Named returns a change of the common name, for New.
func Named(commonName string) func(*x509.Certificate) {
	return func(c *x509.Certificate) { c.Subject.CommonName = commonName }
}

// Certificate returns the certificate with its key.
func (s *Signer) Certificate() *tls.Certificate {
	return &tls.Certificate{Certificate: [][]byte{s.raw}, PrivateKey: s.key}
}

// Pool returns a pool with the certificate alone.
func (s *Signer) Pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(s.is)
	return pool
}

// PEM returns the certificate without its key.
func (s *Signer) PEM() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.raw})
}

// Write writes the certificate and its key to name.crt and name.key in a folder, as PEM.
func (s *Signer) Write(tb testing.TB, folder, name string) {
	tb.Helper()
	key, err := x509.MarshalECPrivateKey(s.key)
	if err != nil {
		tb.Fatal(err)
	}
	for extension, content := range map[string][]byte{
		".crt": s.PEM(), ".key": pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: key}),
	} {
		if err := os.WriteFile(filepath.Join(folder, name+extension), content, 0o600); err != nil {
			tb.Fatal(err)
		}
	}
}

// ForServer returns the settings of a server that requires certificates which s has signed.
func (s *Signer) ForServer(tb testing.TB) *tls.Config {
	tb.Helper()
	return &tls.Config{
		MinVersion: tls.VersionTLS13, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: s.Pool(),
		Certificates: []tls.Certificate{*New(tb, s).Certificate()}, NextProtos: []string{"h2"},
	}
}

// ForClient returns the settings of a client, which may have no certificate.
func (s *Signer) ForClient(certificate *tls.Certificate) *tls.Config {
	config := &tls.Config{MinVersion: tls.VersionTLS13, RootCAs: s.Pool(), ServerName: ServerName}
	if certificate != nil {
		config.Certificates = []tls.Certificate{*certificate}
	}
	return config
}
