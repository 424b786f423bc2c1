package plugin_test

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/machine-controller-fleet/machine-controller-fleet/driver"
	"github.com/machine-controller-fleet/machine-controller-fleet/driver/plugin"
	driverv1 "github.com/machine-controller-fleet/machine-controller-fleet/driver/plugin/v1"
)

// soon is a deadline that a test lets pass.
const soon = 50 * time.Millisecond

// crashing is a listener whose connections a test can cut, as the end of their process does.
type crashing struct {
	net.Listener

	mu    sync.Mutex
	conns []net.Conn
}

func (l *crashing) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err == nil {
		l.mu.Lock()
		l.conns = append(l.conns, conn)
		l.mu.Unlock()
	}
	return conn, err
}

func (l *crashing) crash() {
	_ = l.Close()
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, conn := range l.conns {
		_ = conn.Close()
	}
}

// serveToCrash serves a driver until crash. The listener's error is that of the crash.
func serveToCrash(t *testing.T, socket string, d driver.Driver) (crash func()) {
	t.Helper()
	inner, err := plugin.Listen(t.Context(), socket)
	if err != nil {
		t.Fatal(err)
	}
	listener := &crashing{Listener: inner}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var running sync.WaitGroup
	running.Go(func() { _ = plugin.ServeOn(ctx, listener, plugin.Served{Driver: d}) })
	crash = sync.OnceFunc(func() { listener.crash(); cancel(); running.Wait() })
	t.Cleanup(crash)
	return crash
}

// The effect of a create whose answer is lost is found by the next one, when the process is back.
func TestCrashAfterTheEffectLeavesOneVM(t *testing.T) {
	socket := socketIn(t)
	vms := map[string]bool{}
	var crash func()
	d := &scripted{create: func(_ context.Context, req driver.CreateMachineRequest) (driver.CreateMachineResponse, error) {
		vms[string(req.Machine.UID)] = true
		go crash()
		return driver.CreateMachineResponse{}, nil
	}}
	waits := *d
	waits.create = func(ctx context.Context, req driver.CreateMachineRequest) (driver.CreateMachineResponse, error) {
		resp, err := d.create(ctx, req)
		<-ctx.Done() // the answer is lost
		return resp, err
	}
	crash = serveToCrash(t, socket, &waits)
	client := dial(t, socket)
	ready(t, client)
	_, err := client.CreateMachine(t.Context(), driver.CreateMachineRequest{Target: of("m")})
	want(t, "an answer that is lost", err, driver.Unavailable)
	crash()
	_, err = client.CreateMachine(t.Context(), driver.CreateMachineRequest{Target: of("m")})
	want(t, "without a process", err, driver.Unavailable)
	if message := driver.MessageOf(err); !strings.Contains(message, socket) || !strings.Contains(message, "test") {
		t.Errorf("message %q, want provider and socket", message)
	}

	found := 0
	serve(t, socket,
		plugin.Served{Driver: &scripted{create: func(_ context.Context, req driver.CreateMachineRequest) (driver.CreateMachineResponse, error) {
			if vms[string(req.Machine.UID)] {
				found++
			}
			return driver.CreateMachineResponse{}, nil
		}}})
	ready(t, client)
	if _, err := client.CreateMachine(t.Context(), driver.CreateMachineRequest{Target: of("m")}); err != nil || found != 1 || len(vms) != 1 {
		t.Errorf("after the crash: %v, found %d of %d", err, found, len(vms))
	}
}

// No call waits for a process that is away: a worker that sent it would do nothing else.
func TestAwayCallsFailAtOnce(t *testing.T) {
	socket := socketIn(t)
	client := dial(t, socket)
	for range 1000 {
		_, err := statusOf(t, client, timeout)
		want(t, "never there", err, driver.Unavailable)
	}
	stop := serve(t, socket, plugin.Served{Driver: &scripted{}})
	ready(t, client)
	stop()
	for range 1000 {
		_, err := statusOf(t, client, timeout)
		want(t, "gone", err, driver.Unavailable)
	}
}

// hanging returns a client of a driver whose calls hang until their contexts end, and channels that
// receive when they begin and end.
func hanging(t *testing.T) (client *plugin.Client, began, ended <-chan struct{}) {
	t.Helper()
	begins, ends := make(chan struct{}, 100), make(chan struct{}, 100)
	return connect(t, plugin.Served{
		Driver: &scripted{status: func(ctx context.Context, _ driver.GetMachineStatusRequest) (driver.GetMachineStatusResponse, error) {
			begins <- struct{}{}
			<-ctx.Done()
			ends <- struct{}{}
			return driver.GetMachineStatusResponse{}, driver.Errorf(driver.OpStatus, driver.NotFound, "too late to be used")
		}},
	}), begins, ends
}

func TestHangCallsEndWithTheirContext(t *testing.T) {
	client, began, ended := hanging(t)
	for deadline := soon; len(began) == 0; deadline *= 2 { // on a busy machine it may pass before the driver is called
		_, err := statusOf(t, client, deadline)
		if code := driver.CodeOf(err); code != driver.DeadlineExceeded && code != driver.NotFound {
			t.Errorf("a driver that hangs: %v", err)
		}
	}
	<-ended // of the driver's context, too

	client, began, ended = hanging(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() {
		<-began
		cancel()
	}()
	_, err := client.GetMachineStatus(ctx, driver.GetMachineStatusRequest{Target: of("m")})
	want(t, "a call that is cancelled", err, driver.Canceled)
	<-ended
	_, err = client.GetMachineStatus(ctx, driver.GetMachineStatusRequest{Target: of("m")})
	want(t, "a context that has ended", err, driver.Canceled)
}

// silent is a process that accepts connections and does with each what a test sets.
func silent(t *testing.T, do func(net.Conn)) string {
	t.Helper()
	socket := socketIn(t)
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	var running sync.WaitGroup
	running.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			running.Go(func() { do(conn); _ = conn.Close() })
		}
	})
	t.Cleanup(func() { _ = listener.Close(); running.Wait() })
	return socket
}

func TestHangBeforeTheFirstAnswer(t *testing.T) {
	socket := silent(t, func(conn net.Conn) { _, _ = io.Copy(io.Discard, conn) })
	client := dial(t, socket)
	_, err := statusOf(t, client, soon)
	want(t, "a process that reads only", err, driver.DeadlineExceeded)
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	if err := client.Ready(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Ready: %v", err)
	}
	_, err = statusOf(t, client, timeout) // ends by itself: a negotiation has its own deadline
	if code := driver.CodeOf(err); code != driver.Unavailable && code != driver.DeadlineExceeded {
		t.Errorf("a process that reads only: %v", err)
	}
}

func TestGarbage(t *testing.T) {
	for name, text := range map[string]string{
		"another protocol": "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n",
		"noise":            strings.Repeat("\x00\xff\x7f", 100_000),
		"frames":           strings.Repeat("\x00\x00\x00\x04\x00\x00\x00\x00\x00", 10_000) + "\x00\xff\xff\xff\xff\xff\xff\xff\xff",
		"nothing":          "",
	} {
		client := dial(t, silent(t, func(conn net.Conn) { _, _ = io.WriteString(conn, text) }))
		_, err := statusOf(t, client, timeout)
		if code := driver.CodeOf(err); code != driver.Unavailable && code != driver.DeadlineExceeded {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// What gRPC reports is never taken for an answer of the cloud: after Unimplemented the fleet would
// not look for VMs any more, after NotFound create another one, and after ResourceExhausted have
// the autoscaler leave the node group.
func TestStatusesOfTheTransportAreNoAnswers(t *testing.T) {
	f := &foreign{negotiated: version1()}
	client := runForeign(t, f, healthv1.HealthCheckResponse_SERVING)
	ready(t, client)
	for code := codes.Canceled; code <= codes.Unauthenticated; code++ {
		f.status = func() (*driverv1.GetMachineStatusResponse, error) { return nil, status.Error(code, "no answer") }
		resp, err := statusOf(t, client, timeout)
		wanted := driver.Unknown
		switch code { //nolint:exhaustive // the others are Unknown
		case codes.Unavailable, codes.Canceled:
			wanted = driver.Unavailable
		case codes.DeadlineExceeded:
			wanted = driver.DeadlineExceeded
		}
		if want(t, code.String(), err, wanted); resp.ProviderID != "" {
			t.Errorf("%s: %+v", code, resp)
		}
	}
	_, err := client.CreateMachine(t.Context(), driver.CreateMachineRequest{Target: of("m")})
	want(t, "a method that the process does not have", err, driver.Unknown)
}

func TestFlood(t *testing.T) {
	f := &foreign{negotiated: version1()}
	client := runForeign(t, f, healthv1.HealthCheckResponse_SERVING)
	ready(t, client)
	f.status = func() (*driverv1.GetMachineStatusResponse, error) {
		return &driverv1.GetMachineStatusResponse{Vm: &driverv1.VM{NodeName: strings.Repeat("n", 5<<20)}}, nil
	}
	_, err := statusOf(t, client, timeout)
	want(t, "an answer of 5 MiB", err, driver.Unknown)
	f.status = func() (*driverv1.GetMachineStatusResponse, error) {
		return nil, status.Error(codes.Internal, strings.Repeat("m", 1<<20))
	}
	if _, err = statusOf(t, client, timeout); err == nil || len(err.Error()) > 4<<10 {
		t.Errorf("a message of 1 MiB: %d bytes", len(err.Error()))
	}

	var sent atomic.Int64
	list := func(page func(i int64) *driverv1.ListMachinesResponse) error {
		sent.Store(0)
		f.list = func(stream grpc.ServerStreamingServer[driverv1.ListMachinesResponse]) error {
			for {
				if err := stream.Send(page(sent.Add(1))); err != nil {
					return err
				}
			}
		}
		_, err := client.ListMachines(t.Context(), driver.ListMachinesRequest{Class: of("m").Class})
		return err
	}
	want(t, "a list that does not end", list(func(i int64) *driverv1.ListMachinesResponse {
		page := map[string]string{}
		for j := range int64(1000) {
			page[time.Duration(i*1000+j).String()] = "m"
		}
		return &driverv1.ListMachinesResponse{Machines: page}
	}), driver.Internal)
	want(t, "pages without VMs", list(func(int64) *driverv1.ListMachinesResponse { return &driverv1.ListMachinesResponse{} }), driver.Internal)
	want(t, "the same page again and again", list(func(int64) *driverv1.ListMachinesResponse {
		return &driverv1.ListMachinesResponse{Machines: map[string]string{"test:///a": "a"}}
	}), driver.Internal)
	f.list = func(stream grpc.ServerStreamingServer[driverv1.ListMachinesResponse]) error {
		return stream.SendHeader(metadata.Pairs("long", strings.Repeat("h", 1<<20)))
	}
	if _, err := client.ListMachines(t.Context(), driver.ListMachinesRequest{Class: of("m").Class}); err == nil {
		t.Error("1 MiB of metadata was read")
	}
	f.status = func() (*driverv1.GetMachineStatusResponse, error) { return &driverv1.GetMachineStatusResponse{}, nil }
	ready(t, client)
	if _, err := statusOf(t, client, timeout); err != nil {
		t.Errorf("after the floods: %v", err)
	}
}

func TestRefusals(t *testing.T) {
	for name, c := range map[string]struct {
		process *foreign
		serving healthv1.HealthCheckResponse_ServingStatus
		code    driver.Code
		message string
	}{
		"newer": {
			&foreign{negotiated: &driverv1.NegotiateResponse{Versions: []uint32{2, 3}}}, healthv1.HealthCheckResponse_SERVING,
			driver.FailedPrecondition, "versions [2 3] of the driver protocol, and this fleet has version 1; upgrade",
		},
		"without versions": {
			&foreign{negotiated: &driverv1.NegotiateResponse{}}, healthv1.HealthCheckResponse_SERVING, driver.FailedPrecondition,
			"versions [] of the driver protocol",
		},
		"no driver": {nil, healthv1.HealthCheckResponse_SERVING, driver.FailedPrecondition, "does not have the driver protocol"},
		"another provider": {
			&foreign{negotiated: &driverv1.NegotiateResponse{Versions: []uint32{1}, Provider: "other"}}, healthv1.HealthCheckResponse_SERVING,
			driver.FailedPrecondition, `for provider "other", and is configured for "test"`,
		},
		"newer, and ours": {
			&foreign{negotiated: &driverv1.NegotiateResponse{Versions: []uint32{2, 1}}}, healthv1.HealthCheckResponse_SERVING, driver.NotFound,
			"not there",
		},
		"does not serve": {
			&foreign{negotiated: version1()}, healthv1.HealthCheckResponse_NOT_SERVING, driver.Unavailable, "does not serve now",
		},
		"health is unknown": {&foreign{negotiated: version1()}, healthv1.HealthCheckResponse_UNKNOWN, driver.Unavailable, "does not serve now"},
	} {
		if c.process != nil {
			c.process.status = func() (*driverv1.GetMachineStatusResponse, error) {
				return &driverv1.GetMachineStatusResponse{Failure: &driverv1.Failure{Code: driverv1.Code_CODE_NOT_FOUND, Cause: "not there"}}, nil
			}
		}
		_, err := statusOf(t, runForeign(t, c.process, c.serving), timeout)
		if want(t, name, err, c.code); !strings.Contains(driver.MessageOf(err), c.message) {
			t.Errorf("%s: message %q, want %q in it", name, driver.MessageOf(err), c.message)
		}
	}
}

func TestManyCallsWhileTheProcessRestarts(t *testing.T) {
	socket := socketIn(t)
	d := &scripted{status: func(context.Context, driver.GetMachineStatusRequest) (driver.GetMachineStatusResponse, error) {
		return driver.GetMachineStatusResponse{VM: someVM}, nil
	}}
	client := dial(t, socket)
	var callers sync.WaitGroup
	enough := make(chan struct{})
	for range 20 {
		callers.Go(func() {
			for {
				select {
				case <-enough:
					return
				default:
				}
				resp, err := statusOf(t, client, timeout)
				if code := driver.CodeOf(err); code != driver.OK && code != driver.Unavailable || (err == nil) != (resp.NodeName == "m") {
					t.Errorf("%+v, %v", resp, err)
					return
				}
			}
		})
	}
	for range 5 {
		crash := serveToCrash(t, socket, d)
		ready(t, client)
		crash()
	}
	close(enough)
	callers.Wait()
}

func TestListen(t *testing.T) {
	socket := socketIn(t)
	first, err := plugin.Listen(t.Context(), socket)
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(socket); err != nil || info.Mode().Perm() != 0o660 {
		t.Errorf("%v, %v; want the mode 0660", info, err)
	}
	if _, err := plugin.Listen(t.Context(), socket); err == nil || !strings.Contains(err.Error(), "another process listens") {
		t.Errorf("a socket in use: %v", err)
	}
	first.(*net.UnixListener).SetUnlinkOnClose(false) //nolint:errcheck // a unix socket has no other
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	again, err := plugin.Listen(t.Context(), socket)
	if err != nil {
		t.Fatalf("the socket of an earlier process: %v", err)
	}
	if err := again.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(socket, []byte("a file"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := plugin.Listen(t.Context(), socket); err == nil {
		t.Error("a file that is no socket was replaced")
	}
	if err := plugin.Serve(t.Context(), "relative.sock", plugin.Served{Driver: &scripted{}}); err == nil {
		t.Error("a relative path was accepted")
	}
	if err := plugin.Serve(t.Context(), socketIn(t), plugin.Served{}); err == nil {
		t.Error("no driver was accepted")
	}
	for _, s := range []plugin.Settings{{Socket: "/a"}, {Provider: "p"}, {Provider: "p", Socket: "a"}} {
		if _, err := plugin.Dial(t.Context(), s); err == nil {
			t.Errorf("%+v was accepted", s)
		}
	}
}

// An older driver ignores fields as it did. That it does not report them is no failure of a call.
func TestDriverWithoutUnknownFieldsIsNotAsked(t *testing.T) {
	client := runForeign(t, &foreign{negotiated: version1()}, healthv1.HealthCheckResponse_SERVING)
	_, err := client.GetUnknownFields(t.Context(), driver.GetUnknownFieldsRequest{Class: of("m").Class})
	want(t, "without the capability", err, driver.Unimplemented)
	promised := version1()
	promised.Capabilities = []driverv1.Capability{driverv1.Capability_CAPABILITY_UNKNOWN_FIELDS}
	client = runForeign(t, &foreign{negotiated: promised}, healthv1.HealthCheckResponse_SERVING)
	_, err = client.GetUnknownFields(t.Context(), driver.GetUnknownFieldsRequest{Class: of("m").Class})
	want(t, "with the capability, and without the method", err, driver.Unknown)
}
