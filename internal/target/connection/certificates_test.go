package connection

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"k8s.io/utils/clock"

	"github.com/machine-controller-fleet/machine-controller-fleet/internal/target/access"
)

// The earlier credentials stay.
func TestCertificatesThatAreRefused(t *testing.T) {
	a := server(t, func(http.ResponseWriter, *http.Request) {})
	c, err := New(access.Policy{}, a, clock.RealClock{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	large, err := rsa.GenerateMultiPrimeKey(rand.Reader, 20, maxClientRSA+8) //nolint:staticcheck // one of two primes takes minutes
	if err != nil {
		t.Fatal(err)
	}
	const (
		largeKey       = "expected an RSA key of 1024 to 8192 bits, got one of "
		largeClientKey = "expected an RSA key of 1024 to 4096 bits, got one of "
	)
	public := &rsa.PublicKey{N: new(big.Int).Lsh(big.NewInt(1), maxRSA), E: 65537} // a bit too large
	small := &rsa.PublicKey{N: new(big.Int).Lsh(big.NewInt(1), minRSA-2), E: 65537}
	largest := &rsa.PublicKey{N: new(big.Int).Lsh(big.NewInt(1), maxRSA-1), E: 65537}
	other := ecKey(t)
	for _, tc := range []struct {
		name, ca, cert, key string
		want                string // part of the error, "" for none
	}{
		{"no client certificate", a.CA, "x", "y", "expected a client certificate and its key in PEM"},
		{"a large key of a client", a.CA, certificateOf(t, large.Public()), keyOf(large), "client certificate: " + largeClientKey + "4104"},
		{"no CA", "x", "", "", "expected certificates of the CA in PEM"},
		{"no certificate of a CA", keyOf(large), "", "", "expected certificates of the CA in PEM"},
		{"another block next to a certificate", keyOf(large) + a.CA, "", "", ""},
		{"a large key of a CA", a.CA + certificateOf(t, public), "", "", "CA: certificate 2: " + largeKey + "8193"},
		{"a small key of a CA", a.CA + certificateOf(t, small), "", "", "CA: certificate 2: " + largeKey + "1023"},
		{"keys of a CA", a.CA + certificateOf(t, largest) + certificateOf(t, &other.PublicKey), "", "", ""},
		{"many certificates", strings.Repeat(a.CA, maxCerts), "", "", ""},
		{"too many certificates", strings.Repeat(a.CA, maxCerts+1), "", "", "CA: expected at most 64 certificates, got more"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			changed := a
			changed.CA, changed.ClientCert, changed.ClientKey = tc.ca, tc.cert, tc.key
			_, err := New(access.Policy{}, changed, clock.RealClock{})
			if tc.cert != "" {
				err = c.Use(changed)
			}
			if (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want %q", err, tc.want)
			}
			answer, err := get(t, c, a.Server)
			if err != nil {
				t.Fatal(err)
			}
			_ = answer.Body.Close()
		})
	}
}

// certificateOf returns a certificate of a key, which another one has signed, in PEM.
func certificateOf(t *testing.T, public any) string {
	t.Helper()
	content, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{SerialNumber: big.NewInt(1)}, &x509.Certificate{}, public, ecKey(t))
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: content}))
}

func ecKey(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// keyOf returns a key in PEM.
func keyOf(key *rsa.PrivateKey) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)}))
}

// Another client certificate is used for the next request, and the connections of the earlier one
// are closed, as are all when the target is.
func TestClientCertificates(t *testing.T) {
	var seen atomic.Value
	closed := make(chan string, 2)
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		seen.Store(r.TLS.PeerCertificates[0].Raw)
	}))
	s.EnableHTTP2 = true
	s.TLS = &tls.Config{ClientAuth: tls.RequireAnyClientCert, MinVersion: tls.VersionTLS12}
	s.Config.ConnState = func(connection net.Conn, is http.ConnState) {
		if is == http.StateClosed {
			closed <- connection.RemoteAddr().String()
		}
	}
	s.StartTLS()
	defer s.Close()
	a := access.Access{Server: s.URL, CA: string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}))}
	var c *Connection
	for i := range 2 {
		key := ecKey(t)
		content, err := x509.MarshalECPrivateKey(key)
		if err != nil {
			t.Fatal(err)
		}
		a.ClientCert = certificateOf(t, &key.PublicKey)
		a.ClientKey = string(pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: content}))
		if i == 0 {
			c, err = New(access.Policy{}, a, clock.RealClock{})
		} else {
			err = c.Use(a)
			<-closed
		}
		if err != nil {
			t.Fatal(err)
		}
		answer, err := get(t, c, a.Server)
		if err != nil {
			t.Fatal(err)
		}
		_ = answer.Body.Close()
		block, _ := pem.Decode([]byte(a.ClientCert))
		if got, _ := seen.Load().([]byte); !bytes.Equal(got, block.Bytes) {
			t.Errorf("request %d has another client certificate", i)
		}
	}
	c.Close()
	<-closed
}

func TestProxy(t *testing.T) {
	var seen atomic.Value
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen.Store(r.Method + " " + r.Host)
		w.WriteHeader(http.StatusBadGateway)
	}))
	defer proxy.Close()
	a := server(t, nil)
	a.Server, a.Proxy = "https://target.example:6443", proxy.URL
	c, err := New(access.Policy{}, a, clock.RealClock{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	answer, err := get(t, c, a.Server)
	if err == nil {
		_ = answer.Body.Close()
	}
	if got := seen.Load(); got != "CONNECT target.example:6443" {
		t.Errorf("the proxy got %v; the error is %v", got, err)
	}
}
