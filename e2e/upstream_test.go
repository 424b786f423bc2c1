//go:build e2e

package e2e

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/harness"
)

// autoscalerVariable has the path of upstream's cluster-autoscaler, with the provider externalgrpc.
const autoscalerVariable = "AUTOSCALER"

// autoscalerLongVariable is set for the tests with it that take minutes.
const autoscalerLongVariable = "AUTOSCALER_LONG"

// upstream has the program of autoscalers, their certificates, and the address of a fleet.
type upstream struct {
	program string
	files   autoscalerFiles
	port    string // of all replicas
	service net.Listener
}

// newUpstream returns what autoscalers of a fleet need, which fleetFlags configures. It skips the
// test if there is no program.
func newUpstream(t *testing.T) *upstream {
	t.Helper()
	program := os.Getenv(autoscalerVariable)
	if program == "" {
		t.Skipf("%s names no cluster-autoscaler; see make autoscaler-e2e", autoscalerVariable)
	}
	t.Parallel()
	service, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	u := &upstream{program: program, files: newAutoscalerFiles(t), port: harness.FreePort(t.Context(), t), service: service}
	t.Cleanup(func() { _ = service.Close() })
	go u.serve(t.Context())
	return u
}

// mostReplicas is how many replicas the service knows.
const mostReplicas = 3

// fleetFlags has each replica serve autoscalers, at a separate address.
func (u *upstream) fleetFlags() string {
	return "--autoscaler-address=127.0.1.1$(NUMBER) --autoscaler-port=" + u.port + " --autoscaler-tls-cert-file=" + u.files.of("server.crt") +
		" --autoscaler-tls-private-key-file=" + u.files.of("server.key") + " --autoscaler-client-ca-file=" + u.files.of("ca.crt")
}

// serve forwards each connection to a replica that accepts it, as a Service does, until the service
// is closed.
func (u *upstream) serve(ctx context.Context) {
	for {
		client, err := u.service.Accept()
		if err != nil {
			return
		}
		for number := range mostReplicas {
			replica, err := (&net.Dialer{}).DialContext(ctx, "tcp", "127.0.1.1"+strconv.Itoa(number)+":"+u.port)
			if err == nil {
				go forward(client, replica)
				client = nil
				break
			}
		}
		if client != nil {
			_ = client.Close()
		}
	}
}

// forward copies between two connections until one of them ends.
func forward(a, b net.Conn) {
	both := func() { _, _ = a.Close(), b.Close() }
	go func() {
		defer both()
		_, _ = io.Copy(a, b)
	}()
	defer both()
	_, _ = io.Copy(b, a)
}

// autoscale starts the autoscaler of a namespace for the pods of a cluster, and stops it at the end
// of the test.
func (u *upstream) autoscale(s *space, kubeconfig string) {
	s.Helper()
	s.mayAutoscale("cluster-autoscaler")
	u.files.client(s.name, "cluster-autoscaler")
	config := fmt.Sprintf("address: %s\nkey: %s\ncert: %s\ncacert: %s\n",
		u.service.Addr(), u.files.of(s.name+".key"), u.files.of(s.name+".crt"), u.files.of("ca.crt"))
	file := u.files.of(s.name + "-cloud-config")
	s.must(os.WriteFile(file, []byte(config), 0o600))
	start(s, u.program, "--cloud-provider=externalgrpc", "--cloud-config="+file, "--kubeconfig="+kubeconfig, "--leader-elect=false",
		"--scan-interval=1s", "--scale-down-unneeded-time=5s", "--scale-down-delay-after-add=5s", "--max-node-provision-time=60s",
		"--v=4",
		"--status-config-map-name=status-"+s.name, "--address=127.0.0.1:"+harness.FreePort(s.Context(), s.T))
}

// start starts a program for the namespace, whose log is in a folder of its name in that of the
// lab's logs.
func start(s *space, program string, args ...string) {
	s.Helper()
	folder := filepath.Join(s.lab.Dir, "logs", s.name)
	s.must(os.MkdirAll(folder, 0o700))
	harness.StartProgram(s.Context(), s.T, folder, program, args...)
}

// autoscalerFiles are certificates in a folder: those of an authority, of the fleet and of a
// client.
type autoscalerFiles struct {
	t      *testing.T
	folder string
	key    *ecdsa.PrivateKey
	ca     *x509.Certificate
}

func newAutoscalerFiles(t *testing.T) autoscalerFiles {
	t.Helper()
	f := autoscalerFiles{t: t, folder: t.TempDir()}
	f.ca = &x509.Certificate{
		Subject: pkix.Name{CommonName: "autoscalers"}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	f.key = f.write("ca", f.ca)
	f.write("server", &x509.Certificate{
		Subject: pkix.Name{CommonName: "fleet"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	})
	return f
}

// client writes the certificate of a client that is a ServiceAccount, by the name of its namespace.
func (f autoscalerFiles) client(namespace, name string) {
	f.t.Helper()
	f.write(namespace, &x509.Certificate{
		Subject:     pkix.Name{CommonName: "system:serviceaccount:" + namespace + ":" + name},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
}

func (f autoscalerFiles) of(name string) string { return filepath.Join(f.folder, name) }

// write writes a certificate, signed by the authority, and its new key.
func (f autoscalerFiles) write(name string, of *x509.Certificate) *ecdsa.PrivateKey {
	f.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		f.t.Fatal(err)
	}
	now := time.Now()
	of.SerialNumber, of.NotBefore, of.NotAfter = big.NewInt(now.UnixNano()), now.Add(-time.Hour), now.Add(24*time.Hour)
	by, signing := f.ca, f.key
	if signing == nil {
		by, signing = of, key
	}
	certificate, err := x509.CreateCertificate(rand.Reader, of, by, key.Public(), signing)
	if err != nil {
		f.t.Fatal(err)
	}
	encoded, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		f.t.Fatal(err)
	}
	for file, block := range map[string]*pem.Block{
		name + ".crt": {Type: "CERTIFICATE", Bytes: certificate}, name + ".key": {Type: "EC PRIVATE KEY", Bytes: encoded},
	} {
		if err := os.WriteFile(f.of(file), pem.EncodeToMemory(block), 0o600); err != nil {
			f.t.Fatal(err)
		}
	}
	return key
}
