package connection

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/binary"
	"encoding/pem"
	"io"
	"math/big"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"k8s.io/utils/clock"

	"github.com/machine-controller-fleet/machine-controller-fleet/internal/target/access"
)

// server returns a server and how it is reached.
func server(t *testing.T, handler http.HandlerFunc) access.Access {
	t.Helper()
	s := httptest.NewUnstartedServer(handler)
	s.EnableHTTP2 = true
	s.StartTLS()
	t.Cleanup(s.Close)
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
	return access.Access{Server: s.URL, CA: string(ca), Token: "one"}
}

func get(t *testing.T, c *Connection, url string) (*http.Response, error) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	return (&http.Client{Transport: c}).Do(r)
}

// A watch is open while the token changes.
func TestOtherCredentialsInterruptNoRequest(t *testing.T) {
	goOn := make(chan struct{})
	var seen, connections atomic.Value
	a := server(t, func(w http.ResponseWriter, r *http.Request) {
		seen.Store(r.Header.Get("Authorization"))
		w.Header().Set("Warning", `299 - "logged"`)
		if r.URL.Query().Get("watch") == "" {
			connections.Store(r.RemoteAddr)
			return
		}
		w.WriteHeader(http.StatusOK)
		_ = http.NewResponseController(w).Flush()
		<-goOn
		_, _ = io.WriteString(w, "end")
	})
	c, err := New(access.Policy{}, a, clock.RealClock{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	watch, err := get(t, c, a.Server+"?watch=1")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = watch.Body.Close() }()
	a.Token = "two"
	if err := c.Use(a); err != nil {
		t.Fatal(err)
	}
	answer, err := get(t, c, a.Server)
	if err != nil {
		t.Fatal(err)
	}
	_ = answer.Body.Close()
	if got := answer.Header.Get("Warning"); got != "" {
		t.Errorf("got the warning %s", got)
	}
	if got := seen.Load(); got != "Bearer two" || answer.ProtoMajor != 2 {
		t.Errorf("got %v by HTTP/%d, want the new token by HTTP/2", got, answer.ProtoMajor)
	}
	close(goOn)
	if rest, err := io.ReadAll(watch.Body); string(rest) != "end" || err != nil {
		t.Errorf("the watch ended with %q, %v", rest, err)
	}
}

func TestRefusedAnswersAndAddresses(t *testing.T) {
	loopback := access.Policy{Refused: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}}
	for name, tc := range map[string]struct {
		policy  access.Policy
		handler http.HandlerFunc
		want    string
	}{
		"redirect": {
			handler: func(w http.ResponseWriter, r *http.Request) {
				http.Redirect(w, r, "https://other.example", http.StatusFound)
			},
			want: "got status 302 that redirects to another address",
		},
		"too large": {
			handler: func(w http.ResponseWriter, _ *http.Request) {
				part := bytes.Repeat([]byte("x"), 1<<20)
				for range MaxBody>>20 + 1 {
					_, _ = w.Write(part)
				}
			},
			want: "expected an answer of at most 16777216 bytes",
		},
		"large failure": {
			handler: func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(http.StatusForbidden)
				_, _ = w.Write(bytes.Repeat([]byte("x"), MaxError+1))
			},
			want: "expected an answer of at most 16384 bytes",
		},
		"large header": {
			handler: func(w http.ResponseWriter, _ *http.Request) {
				w.Header()["X"] = slices.Repeat([]string{strings.Repeat("x", 1<<10)}, 2*maxHeader>>10)
			},
			want: "response header list larger than advertised limit",
		},
		"refused network": {policy: loopback, want: "127.0.0.1 is in a network that no target cluster may be in"},
	} {
		t.Run(name, func(t *testing.T) {
			a := server(t, tc.handler)
			c, err := New(tc.policy, a, clock.RealClock{})
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			answer, err := get(t, c, a.Server)
			if err == nil {
				_, err = io.Copy(io.Discard, answer.Body)
				_ = answer.Body.Close()
			}
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want an error with %q", err, tc.want)
			}
		})
	}
}

// The earlier credentials stay.
func TestCertificatesThatAreRefused(t *testing.T) {
	a := server(t, func(http.ResponseWriter, *http.Request) {})
	c, err := New(access.Policy{}, a, clock.RealClock{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	large, err := rsa.GenerateMultiPrimeKey(rand.Reader, 20, maxRSA+8) //nolint:staticcheck // one of two primes takes minutes
	if err != nil {
		t.Fatal(err)
	}
	const largeKey = "expected an RSA key of at most 8192 bits, got one of "
	public := &rsa.PublicKey{N: new(big.Int).Lsh(big.NewInt(1), maxRSA), E: 65537} // a bit too large
	for _, tc := range []struct {
		name, ca, cert, key string
		want                string // part of the error, "" for none
	}{
		{"no client certificate", a.CA, "x", "y", "expected a client certificate and its key in PEM"},
		{"a large key of a client", a.CA, certificateOf(t, large.Public()), keyOf(large), "client certificate: " + largeKey + "8200"},
		{"no CA", "x", "", "", "expected certificates of the CA in PEM"},
		{"no certificate of a CA", keyOf(large), "", "", "expected certificates of the CA in PEM"},
		{"another block next to a certificate", keyOf(large) + a.CA, "", "", ""},
		{"a large key of a CA", a.CA + certificateOf(t, public), "", "", "CA: certificate 2: " + largeKey + "8193"},
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
	signer, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	content, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{SerialNumber: big.NewInt(1)}, &x509.Certificate{}, public, signer)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: content}))
}

// keyOf returns a key in PEM.
func keyOf(key *rsa.PrivateKey) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)}))
}

// Each answer is small enough, and they are read at the same time.
func TestAnswersThatAreTooLargeTogether(t *testing.T) {
	part := bytes.Repeat([]byte("x"), MaxBody/2)
	a := server(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(part) })
	c, err := New(access.Policy{}, a, clock.RealClock{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	read := func() (io.Closer, error) {
		answer, err := get(t, c, a.Server)
		if err != nil {
			return nil, err
		}
		_, err = io.Copy(io.Discard, answer.Body)
		return answer.Body, err
	}
	var open []io.Closer
	for range MaxBodies / len(part) {
		body, err := read()
		if err != nil {
			t.Fatal(err)
		}
		open = append(open, body)
	}
	body, err := read()
	if err == nil || !strings.Contains(err.Error(), "together at most 33554432 bytes") {
		t.Errorf("got %v", err)
	}
	for _, body := range append(open, body) {
		_ = body.Close()
	}
	if got := c.read.bytes.Load() + c.read.values.Load(); got != 0 {
		t.Errorf("%d bytes count as being read after all, want none", got)
	}
}

func TestEventsThatAreTooLarge(t *testing.T) {
	text := func(n int) string { return `{"type":"ADDED","object":{"a":"\"}` + strings.Repeat("x", n) + `"}}` }
	framed := func(n uint32, content int) string {
		return string(binary.BigEndian.AppendUint32(nil, n)) + strings.Repeat("{", content)
	}
	for _, tc := range []struct {
		name, encoding, events string
		fails                  bool
	}{
		{"many in JSON", "application/json", strings.Repeat(text(MaxEvent/3)+"\n", 9), false},
		{"a large one in JSON", "application/json", text(10) + text(MaxEvent), true},
		{"no event in JSON", "application/json", strings.Repeat("\n", MaxEvent+1), true},
		{"many in protobuf", "application/vnd.kubernetes.protobuf;stream=watch", strings.Repeat(framed(MaxEvent/3, MaxEvent/3), 9), false},
		{"many values in JSON", "application/json", `{"object":[` + strings.Repeat("{},", maxEventValues) + "{}]}", true},
		{
			"many values in protobuf", "application/vnd.kubernetes.protobuf;stream=watch",
			framed(2*maxEventValues+2, 0) + strings.Repeat("\x0a\x00", maxEventValues+1), true,
		},
		{"a large one in protobuf", "application/vnd.kubernetes.protobuf;stream=watch", framed(5, 5) + framed(MaxEvent+1, 1), true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			a := server(t, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", tc.encoding)
				_, _ = io.WriteString(w, tc.events)
			})
			c, err := New(access.Policy{}, a, clock.RealClock{})
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			answer, err := get(t, c, a.Server+"?watch=true")
			if err != nil {
				t.Fatal(err)
			}
			n, err := io.Copy(io.Discard, answer.Body)
			_ = answer.Body.Close()
			if (err != nil) != tc.fails || !tc.fails && n != int64(len(tc.events)) {
				t.Errorf("read %d of %d bytes, %v", n, len(tc.events), err)
			}
		})
	}
}
