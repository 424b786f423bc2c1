package connection

import (
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
)

// maxCerts is the maximum number of certificates of a CA, and maxRSA that of bits of an RSA key:
// one of 380,000 bits, which fits into a Secret, takes a processor 14 s in each handshake. Go has
// the same limit of bits for the certificates that a server sends, and none for these.
const maxCerts, maxRSA = 64, 8192

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
		if err := checkKey(cert.PublicKey); err != nil {
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
	if err := checkKey(pair.Leaf.PublicKey); err != nil {
		return tls.Certificate{}, fmt.Errorf("client certificate: %w", err)
	}
	return pair, nil
}

// checkKey returns an error if a key takes too much time.
func checkKey(public any) error {
	if key, ok := public.(*rsa.PublicKey); ok && key.N.BitLen() > maxRSA {
		return fmt.Errorf("expected an RSA key of at most %d bits, got one of %d", maxRSA, key.N.BitLen())
	}
	return nil
}
