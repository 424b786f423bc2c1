package serving

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/klog/v2"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/certificates"
)

// greet connects with certificates, and returns the error of the handshake or of the first byte:
// with TLS 1.3 a client learns only then that it is refused.
func greet(ctx context.Context, address string, pool *x509.CertPool, own ...tls.Certificate) error {
	dialer := tls.Dialer{Config: &tls.Config{
		MinVersion: tls.VersionTLS13, RootCAs: pool, ServerName: servedName, Certificates: own, NextProtos: []string{"h2"},
	}}
	conn, err := dialer.DialContext(ctx, "tcp", address)
	if err != nil {
		return err
	}
	defer conn.Close()
	_, err = io.ReadFull(conn, make([]byte, 1))
	return err
}

// serveGreetings writes a byte to each client that passes the handshake.
func serveGreetings(t *testing.T, listener net.Listener, config *tls.Config) {
	t.Helper()
	ended := make(chan struct{})
	t.Cleanup(func() {
		_ = listener.Close()
		<-ended
	})
	go func() {
		defer close(ended)
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			secured := tls.Server(conn, config)
			if secured.HandshakeContext(t.Context()) == nil {
				_, _ = secured.Write([]byte{1})
			}
			_ = secured.Close()
		}
	}()
}

func TestClientsNeedACertificateOfAnAuthority(t *testing.T) {
	files, pool := newCertificateFiles(t)
	one, two := certificates.New(t, nil), certificates.New(t, nil)
	authorities := filepath.Join(t.TempDir(), "ca.crt")
	writeFile(t, authorities, one.PEM())
	listener, config, err := ListenMutual(t.Context(), MutualOptions{
		Address: "127.0.0.1", CertFile: files.cert, KeyFile: files.key, ClientCAFile: authorities,
	})
	if err != nil {
		t.Fatal(err)
	}
	serveGreetings(t, listener, config)
	address := listener.Addr().String()
	if err := greet(t.Context(), address, pool, *one.Certificate()); err != nil {
		t.Error(err)
	}
	if err := greet(t.Context(), address, pool, *two.Certificate()); err == nil {
		t.Error("a client of another authority is served")
	}
	if err := greet(t.Context(), address, pool); err == nil {
		t.Error("a client without a certificate is served")
	}
}

func TestChangedAuthoritiesOfClientsAreUsed(t *testing.T) {
	first, second := certificates.New(t, nil).PEM(), certificates.New(t, nil).PEM()
	file := filepath.Join(t.TempDir(), "ca.crt")
	writeFile(t, file, first)
	clock := clocktesting.NewFakePassiveClock(time.Unix(0, 0))
	authorities, err := newClientAuthorities(file, clock, klog.Background())
	if err != nil {
		t.Fatal(err)
	}
	poolOf := func(encoded ...[]byte) *x509.CertPool {
		pool := x509.NewCertPool()
		for _, of := range encoded {
			pool.AppendCertsFromPEM(of)
		}
		return pool
	}
	want := func(when string, pool *x509.CertPool) {
		t.Helper()
		if !authorities.get().Equal(pool) {
			t.Errorf("%s: other authorities are used", when)
		}
	}
	writeFile(t, file, append(first, second...))
	want("at once", poolOf(first))
	clock.SetTime(clock.Now().Add(certificateFresh))
	want("changed", poolOf(first, second))
	writeFile(t, file, []byte("none"))
	clock.SetTime(clock.Now().Add(certificateFresh))
	want("invalid", poolOf(first, second))
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	clock.SetTime(clock.Now().Add(certificateFresh))
	want("gone", poolOf(first, second))
	writeFile(t, file, second)
	clock.SetTime(clock.Now().Add(certificateFresh))
	want("there again", poolOf(second))
}

func TestInvalidFilesOfTheMutualPortAreNamed(t *testing.T) {
	files, _ := newCertificateFiles(t)
	none := filepath.Join(t.TempDir(), "none")
	writeFile(t, none, []byte("none"))
	for want, o := range map[string]MutualOptions{
		"a certificate with its chain": {CertFile: none, KeyFile: files.key, ClientCAFile: files.cert},
		"authorities of clients":       {CertFile: files.cert, KeyFile: files.key, ClientCAFile: none},
		"no such file":                 {CertFile: files.cert, KeyFile: files.key, ClientCAFile: none + "2"},
	} {
		if _, _, err := ListenMutual(t.Context(), o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want an error with %q, got %v", want, err)
		}
	}
}
