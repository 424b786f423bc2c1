//go:build e2e

package e2e

import (
	"context"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/harness"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/certificates"
)

// autoscalerVariable has the path of upstream's cluster-autoscaler, with the provider externalgrpc.
const autoscalerVariable = "AUTOSCALER"

// upstream has the program of autoscalers, their certificates, and the address of a fleet.
type upstream struct {
	program   string
	authority *certificates.Signer
	folder    string // of files
	port      string // of all replicas
	service   net.Listener
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
	u := &upstream{
		program: program, authority: certificates.New(t, nil), folder: t.TempDir(), port: harness.FreePort(t.Context(), t), service: service,
	}
	u.authority.Write(t, u.folder, "ca")
	atLoopback := func(c *x509.Certificate) { c.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1)} }
	certificates.New(t, u.authority, atLoopback).Write(t, u.folder, "server")
	t.Cleanup(func() { _ = service.Close() })
	go u.serve(t.Context())
	return u
}

func (u *upstream) file(name string) string { return filepath.Join(u.folder, name) }

// mostReplicas is how many replicas the service knows.
const mostReplicas = 3

// fleetFlags has each replica serve autoscalers, at a separate address.
func (u *upstream) fleetFlags() string {
	return "--autoscaler-address=127.0.1.1$(NUMBER) --autoscaler-port=" + u.port + " --autoscaler-tls-cert-file=" + u.file("server.crt") +
		" --autoscaler-tls-private-key-file=" + u.file("server.key") + " --autoscaler-client-ca-file=" + u.file("ca.crt")
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
	certificates.New(s.T, u.authority, certificates.Named("system:serviceaccount:"+s.name+":cluster-autoscaler")).Write(s.T, u.folder, s.name)
	config := fmt.Sprintf("address: %s\nkey: %s\ncert: %s\ncacert: %s\n",
		u.service.Addr(), u.file(s.name+".key"), u.file(s.name+".crt"), u.file("ca.crt"))
	file := u.file(s.name + "-cloud-config")
	s.must(os.WriteFile(file, []byte(config), 0o600))
	start(s, u.program, "--cloud-provider=externalgrpc", "--cloud-config="+file, "--kubeconfig="+kubeconfig, "--leader-elect=false",
		"--scan-interval=1s", "--scale-down-unneeded-time=5s", "--scale-down-delay-after-add=5s", "--max-node-provision-time=60s",
		"--v=4", "--status-config-map-name=status-"+s.name, "--address=127.0.0.1:"+harness.FreePort(s.Context(), s.T))
}

// start starts a program for the namespace, whose log is in a folder of its name in that of the
// lab's logs.
func start(s *space, program string, args ...string) {
	s.Helper()
	folder := filepath.Join(s.lab.Dir, "logs", s.name)
	s.must(os.MkdirAll(folder, 0o700))
	harness.StartProgram(s.Context(), s.T, folder, program, args...)
}
