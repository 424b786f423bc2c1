package connection

import (
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
)

const (
	// maxCerts is the maximum number of certificates of a CA.
	maxCerts = 64
	// maxRSA is the maximum number of bits of an RSA key of a CA, and maxClientRSA of that of a
	// client: one of 380,000 bits, which fits into a Secret, takes a processor 14 s in each
	// handshake. Go has the same limit for the certificates that a server sends, and none for
	// these. A client signs with its key, for which one of 8192 bits takes 0.2 s.
	maxRSA, maxClientRSA = 8192, 4096
	// minRSA is the minimum number, with less of which Go does not sign.
	minRSA = 1024
)

// caOf returns the certificates of a CA. Errors: there is none, there are too many, or one has a
// key that is too large.
func caOf(text string) (*x509.CertPool, error) {
	pool, n := x509.NewCertPool(), 0
	for block, rest := pem.Decode([]byte(text)); block != nil; block, rest = pem.Decode(rest) {
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			continue // what is no certificate verifies none
		}
		if n++; n > maxCerts {
			return nil, fmt.Errorf("CA: expected at most %d certificates, got more; leave out those that the server does not need", maxCerts)
		}
		if err := checkKey(cert.PublicKey, maxRSA); err != nil {
			return nil, fmt.Errorf("CA: certificate %d: %w", n, err)
		}
		pool.AddCert(cert)
	}
	if n == 0 {
		return nil, errors.New("expected certificates of the CA in PEM, got something else")
	}
	return pool, nil
}

// clientOf returns a client certificate. Errors: one that cannot be parsed, or whose key is too
// large.
func clientOf(cert, key string) (tls.Certificate, error) {
	pair, err := tls.X509KeyPair([]byte(cert), []byte(key))
	if err != nil {
		// The error may have parts of the key.
		return tls.Certificate{}, errors.New("expected a client certificate and its key in PEM, got something else")
	}
	if err := checkKey(pair.Leaf.PublicKey, maxClientRSA); err != nil {
		return tls.Certificate{}, fmt.Errorf("client certificate: %w", err)
	}
	return pair, nil
}

// checkKey returns an error if a key takes too much time, or cannot be used.
func checkKey(public any, most int) error {
	if key, ok := public.(*rsa.PublicKey); ok && (key.N.BitLen() > most || key.N.BitLen() < minRSA) {
		return fmt.Errorf("expected an RSA key of %d to %d bits, got one of %d", minRSA, most, key.N.BitLen())
	}
	return nil
}
