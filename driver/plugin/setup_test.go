package plugin_test

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/driver"
	"github.com/machine-controller-fleet/machine-controller-fleet/driver/plugin"
	driverv1 "github.com/machine-controller-fleet/machine-controller-fleet/driver/plugin/v1"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// timeout is how long a test waits for what is certain to happen.
const timeout = 20 * time.Second

// scripted is a driver whose methods a test sets; the others are Internal.
type scripted struct {
	driver.Driver

	fields     func(context.Context, driver.GetUnknownFieldsRequest) (driver.GetUnknownFieldsResponse, error)
	create     func(context.Context, driver.CreateMachineRequest) (driver.CreateMachineResponse, error)
	initialize func(context.Context, driver.InitializeMachineRequest) (driver.InitializeMachineResponse, error)
	remove     func(context.Context, driver.DeleteMachineRequest) (driver.DeleteMachineResponse, error)
	status     func(context.Context, driver.GetMachineStatusRequest) (driver.GetMachineStatusResponse, error)
	list       func(context.Context, driver.ListMachinesRequest) (driver.ListMachinesResponse, error)
	volumes    func(context.Context, driver.GetVolumeIDsRequest) (driver.GetVolumeIDsResponse, error)
}

func (d *scripted) GetUnknownFields(ctx context.Context, req driver.GetUnknownFieldsRequest) (driver.GetUnknownFieldsResponse, error) {
	return d.fields(ctx, req)
}

func (d *scripted) CreateMachine(ctx context.Context, req driver.CreateMachineRequest) (driver.CreateMachineResponse, error) {
	return d.create(ctx, req)
}

func (d *scripted) InitializeMachine(ctx context.Context, req driver.InitializeMachineRequest) (driver.InitializeMachineResponse, error) {
	return d.initialize(ctx, req)
}

func (d *scripted) DeleteMachine(ctx context.Context, req driver.DeleteMachineRequest) (driver.DeleteMachineResponse, error) {
	return d.remove(ctx, req)
}

func (d *scripted) GetMachineStatus(ctx context.Context, req driver.GetMachineStatusRequest) (driver.GetMachineStatusResponse, error) {
	return d.status(ctx, req)
}

func (d *scripted) ListMachines(ctx context.Context, req driver.ListMachinesRequest) (driver.ListMachinesResponse, error) {
	return d.list(ctx, req)
}

func (d *scripted) GetVolumeIDs(ctx context.Context, req driver.GetVolumeIDsRequest) (driver.GetVolumeIDsResponse, error) {
	return d.volumes(ctx, req)
}

// sweeping is a scripted driver with a Sweeper.
type sweeping struct {
	*scripted

	scope     func(driver.ScopeRequest) (string, error)
	resources func(context.Context, driver.ListResourcesRequest) (driver.ListResourcesResponse, error)
	sweep     func(context.Context, driver.DeleteResourceRequest) (driver.DeleteResourceResponse, error)
}

func (d *sweeping) Scope(req driver.ScopeRequest) (string, error) { return d.scope(req) }

func (d *sweeping) ListResources(ctx context.Context, req driver.ListResourcesRequest) (driver.ListResourcesResponse, error) {
	return d.resources(ctx, req)
}

func (d *sweeping) DeleteResource(ctx context.Context, req driver.DeleteResourceRequest) (driver.DeleteResourceResponse, error) {
	return d.sweep(ctx, req)
}

// socketIn returns a path for a socket; the name of t.TempDir() is too long.
func socketIn(t *testing.T) string {
	t.Helper()
	folder, err := os.MkdirTemp("", "mcf") //nolint:usetesting // see above
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(folder) })
	return filepath.Join(folder, "driver.sock")
}

// serve serves a driver until stop or the end of the test.
func serve(t *testing.T, socket string, served plugin.Served) (stop func()) {
	t.Helper()
	listener, err := plugin.Listen(t.Context(), socket)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := plugin.ServeOn(ctx, listener, served); err != nil {
			t.Errorf("ServeOn: %v", err)
		}
	}()
	stop = func() { cancel(); <-ended }
	t.Cleanup(stop)
	return stop
}

// dial returns a client, connected or not.
func dial(t *testing.T, socket string) *plugin.Client {
	t.Helper()
	client, err := plugin.Dial(context.WithoutCancel(t.Context()), plugin.Settings{
		Provider: "test", Socket: socket, Share: func() float64 { return sentShare }, Now: func() time.Time { return time.Now().Add(sentAhead) },
		Ownership: func(ctx context.Context) (plugin.Ownership, bool) {
			o, ok := ctx.Value(ownerKey{}).(plugin.Ownership)
			return o, ok
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := client.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return client
}

type ownerKey struct{}

// connect serves a driver and returns a client that is connected to it.
func connect(t *testing.T, served plugin.Served) *plugin.Client {
	t.Helper()
	socket := socketIn(t)
	serve(t, socket, served)
	client := dial(t, socket)
	ready(t, client)
	return client
}

func ready(t *testing.T, client *plugin.Client) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	if err := client.Ready(ctx); err != nil {
		t.Fatal(err)
	}
}

// foreign is a process that has the protocol and keeps none of its rules, but where a test says so.
type foreign struct {
	driverv1.UnimplementedDriverServer
	driverv1.UnimplementedNegotiationServer

	negotiated *driverv1.NegotiateResponse
	status     func() (*driverv1.GetMachineStatusResponse, error)
	list       func(grpc.ServerStreamingServer[driverv1.ListMachinesResponse]) error
}

func (f *foreign) Negotiate(context.Context, *driverv1.NegotiateRequest) (*driverv1.NegotiateResponse, error) {
	return f.negotiated, nil
}

func (f *foreign) GetMachineStatus(context.Context, *driverv1.GetMachineStatusRequest) (*driverv1.GetMachineStatusResponse, error) {
	return f.status()
}

func (f *foreign) ListMachines(_ *driverv1.ListMachinesRequest, stream grpc.ServerStreamingServer[driverv1.ListMachinesResponse]) error {
	return f.list(stream)
}

// version1 returns a valid answer of a driver.
func version1() *driverv1.NegotiateResponse {
	return &driverv1.NegotiateResponse{Versions: []uint32{1}}
}

// runForeign runs such a process until the end of the test, with a healthy service unless that is
// nil, and returns a client of it.
func runForeign(t *testing.T, f *foreign, serving healthv1.HealthCheckResponse_ServingStatus) *plugin.Client {
	t.Helper()
	socket := socketIn(t)
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	if f != nil {
		driverv1.RegisterDriverServer(server, f)
		driverv1.RegisterNegotiationServer(server, f)
	}
	healthy := health.NewServer()
	healthy.SetServingStatus(driverv1.Driver_ServiceDesc.ServiceName, serving)
	healthv1.RegisterHealthServer(server, healthy)
	var running sync.WaitGroup
	running.Go(func() { _ = server.Serve(listener) })
	t.Cleanup(func() { server.Stop(); running.Wait() })
	return dial(t, socket)
}

// of returns a target with all that a target can have.
func of(name string) driver.Target {
	return driver.Target{
		Machine: &v1alpha1.Machine{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: "ns", Name: name, UID: "uid-" + "0", Labels: map[string]string{"a": "b"},
				CreationTimestamp: metav1.NewTime(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC).Local()),
			},
			Spec:   v1alpha1.MachineSpec{ProviderID: "test:///" + name},
			Status: v1alpha1.MachineStatus{LastKnownState: "state"},
		},
		Class: &v1alpha1.MachineClass{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "class"}, Provider: "test",
			ProviderSpec: runtime.RawExtension{Raw: []byte("{no JSON")},
		},
		Secret: map[string][]byte{"password": []byte(password)}, Adopt: true, ControlCluster: "cluster-1",
	}
}

// password is a secret that no answer may have.
const password = "correct horse battery staple"

// statusOf calls GetMachineStatus with that deadline.
func statusOf(t *testing.T, client driver.Driver, deadline time.Duration) (driver.GetMachineStatusResponse, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), deadline)
	defer cancel()
	return client.GetMachineStatus(ctx, driver.GetMachineStatusRequest{Target: of("m")})
}

// want fails the test unless an error has a code.
func want(t *testing.T, what string, err error, code driver.Code) {
	t.Helper()
	if got := driver.CodeOf(err); got != code {
		t.Errorf("%s: code %v, want %v: %v", what, got, code, err)
	}
}

// sentShare is the share that clients of these tests send.
const sentShare = 0.375

// sentAhead is by how much the clock of the control cluster is ahead in these tests.
const sentAhead = 10 * time.Minute
