package controlplane

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/client-go/tools/clientcmd"
)

func newCA(t *testing.T) *CA {
	t.Helper()
	ca, err := NewCA("test-ca", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	return ca
}

func issue(t *testing.T, ca *CA, s Subject) Pair {
	t.Helper()
	pair, err := ca.Issue(s, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	return pair
}

// A server and a client that trust the same authority can connect, and the server sees user and
// groups.
func TestClientConnectsToServer(t *testing.T) {
	ca := newCA(t)
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(ca.Cert)
	keyPair := func(p Pair) tls.Certificate {
		cert, err := tls.X509KeyPair(p.Cert, p.Key)
		if err != nil {
			t.Fatal(err)
		}
		return cert
	}

	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		subject := r.TLS.PeerCertificates[0].Subject
		_, _ = io.WriteString(w, subject.CommonName+" "+subject.Organization[0])
	}))
	server.TLS = &tls.Config{
		Certificates: []tls.Certificate{keyPair(issue(t, ca, Subject{User: "server", Hosts: []string{"127.0.0.1", "localhost"}}))},
		ClientAuth:   tls.RequireAndVerifyClientCert,
		ClientCAs:    pool,
	}
	server.StartTLS()
	defer server.Close()

	client := func(ca *CA) *http.Client {
		user := keyPair(issue(t, ca, Subject{User: "fleet-0", Groups: []string{"machine-controller-fleet"}}))
		transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, Certificates: []tls.Certificate{user}}}
		t.Cleanup(transport.CloseIdleConnections)
		return &http.Client{Transport: transport}
	}
	resp, err := client(ca).Get(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := string(body), "fleet-0 machine-controller-fleet"; got != want {
		t.Errorf("the server saw %q, want %q", got, want)
	}

	resp, err = client(newCA(t)).Get(server.URL)
	if err == nil {
		_ = resp.Body.Close()
		t.Error("a client of another authority was let in")
	}
}

func TestClientCertificateIsNoServerCertificate(t *testing.T) {
	pair := issue(t, newCA(t), Subject{User: "client"})
	block, _ := pem.Decode(pair.Cert)
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}, cert.ExtKeyUsage); diff != "" {
		t.Errorf("usages (-want +got):\n%s", diff)
	}
}

func TestSigningKeysBelongTogether(t *testing.T) {
	pair, err := NewSigningKeys()
	if err != nil {
		t.Fatal(err)
	}
	privateBlock, _ := pem.Decode(pair.Key)
	private, err := x509.ParseECPrivateKey(privateBlock.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	publicBlock, _ := pem.Decode(pair.Cert)
	public, err := x509.ParsePKIXPublicKey(publicBlock.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	if !private.PublicKey.Equal(public) {
		t.Error("public and private key are of different pairs")
	}
}

// client-go can read the file.
func TestKubeconfig(t *testing.T) {
	ca := newCA(t)
	user := issue(t, ca, Subject{User: "admin"})
	data, err := Kubeconfig("https://127.0.0.1:6443", ca.Cert, user)
	if err != nil {
		t.Fatal(err)
	}
	config, err := clientcmd.RESTConfigFromKubeConfig(data)
	if err != nil {
		t.Fatal(err)
	}
	got := []string{config.Host, string(config.CAData), string(config.CertData), string(config.KeyData)}
	want := []string{"https://127.0.0.1:6443", string(ca.Cert), string(user.Cert), string(user.Key)}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("config (-want +got):\n%s", diff)
	}
}
