package controlplane

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"time"
)

const (
	lifetime = 365 * 24 * time.Hour
	// backdate keeps certificates valid where a clock is a little behind.
	backdate = time.Hour
)

// Pair is a certificate and its private key, or a public key and its private key; both PEM.
type Pair struct {
	Cert, Key []byte
}

// CA is a certificate authority.
type CA struct {
	Pair
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// NewCA creates a certificate authority, valid for a year from now.
func NewCA(name string, now time.Time) (*CA, error) {
	template := &x509.Certificate{
		Subject:               pkix.Name{CommonName: name},
		IsCA:                  true,
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("creating the key of CA %q: %w", name, err)
	}
	pair, err := sign(template, key, template, key, now)
	if err != nil {
		return nil, fmt.Errorf("creating CA %q: %w", name, err)
	}
	block, _ := pem.Decode(pair.Cert)
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("reading back CA %q: %w", name, err)
	}
	return &CA{Pair: pair, cert: cert, key: key}, nil
}

// Subject is the subject of a certificate.
type Subject struct {
	// User is the user name that Kubernetes sees in a client certificate.
	User string
	// Groups of the user.
	Groups []string
	// Hosts are the names and IP addresses that a server answers under; without any it is a client's
	// certificate only.
	Hosts []string
}

// Issue creates a key and a certificate for it, valid for a year from now. It serves a client, and
// with Hosts a server too.
func (ca *CA) Issue(s Subject, now time.Time) (Pair, error) {
	template := &x509.Certificate{
		Subject:     pkix.Name{CommonName: s.User, Organization: s.Groups},
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	for _, host := range s.Hosts {
		if ip := net.ParseIP(host); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, host)
		}
	}
	if len(s.Hosts) > 0 {
		template.ExtKeyUsage = append(template.ExtKeyUsage, x509.ExtKeyUsageServerAuth)
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return Pair{}, fmt.Errorf("creating a key for %q: %w", s.User, err)
	}
	pair, err := sign(template, key, ca.cert, ca.key, now)
	if err != nil {
		return Pair{}, fmt.Errorf("creating a certificate for %q: %w", s.User, err)
	}
	return pair, nil
}

// NewSigningKeys creates the key pair of service account tokens; Cert holds the public key.
func NewSigningKeys() (Pair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return Pair{}, fmt.Errorf("creating a signing key: %w", err)
	}
	public, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return Pair{}, fmt.Errorf("encoding a public key: %w", err)
	}
	private, err := encodeKey(key)
	if err != nil {
		return Pair{}, err
	}
	return Pair{Cert: pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: public}), Key: private}, nil
}

// sign sets the common fields of all certificates, and signs.
func sign(
	template *x509.Certificate, key *ecdsa.PrivateKey, parent *x509.Certificate, parentKey *ecdsa.PrivateKey, now time.Time,
) (Pair, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return Pair{}, fmt.Errorf("creating a serial number: %w", err)
	}
	template.SerialNumber = serial
	template.NotBefore, template.NotAfter = now.Add(-backdate), now.Add(lifetime)
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), parentKey)
	if err != nil {
		return Pair{}, fmt.Errorf("signing: %w", err)
	}
	keyPEM, err := encodeKey(key)
	if err != nil {
		return Pair{}, err
	}
	return Pair{Cert: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), Key: keyPEM}, nil
}

func encodeKey(key *ecdsa.PrivateKey) ([]byte, error) {
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("encoding a private key: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}), nil
}
