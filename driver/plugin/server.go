package plugin

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"runtime/debug"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/machine-controller-fleet/machine-controller-fleet/driver"
	driverv1 "github.com/machine-controller-fleet/machine-controller-fleet/driver/plugin/v1"
)

// Served is a driver that is served.
type Served struct {
	// Driver is required. Its Sweeper is served, too, if it has one, see driver.SweeperOf.
	Driver driver.Driver
	// Provider is the value of MachineClass.provider that the driver is for. A fleet that expects
	// another one refuses the driver. "" is for any.
	Provider string
	// Version of the driver's build, for logs of the fleet.
	Version string
	// NeverInitializes states that InitializeMachine always returns Unimplemented: the fleet then does
	// not call it.
	NeverInitializes bool
}

// Serve serves a driver on the unix socket at that path until ctx ends, and then waits a short
// while for calls in flight. It removes what an earlier process has left at the path, and no socket
// on which a process listens.
//
// Errors: no driver, a path at which no socket can be created, or one that is in use. It returns
// nil when ctx has ended.
func Serve(ctx context.Context, socket string, served Served) error {
	listener, err := Listen(ctx, socket)
	if err != nil {
		return err
	}
	return ServeOn(ctx, listener, served)
}

// Listen returns a listener on the unix socket at that path, for the process' user and group.
// Errors as of Serve.
func Listen(ctx context.Context, socket string) (net.Listener, error) {
	if err := CheckSocket(socket); err != nil {
		return nil, err
	}
	if info, err := os.Lstat(socket); err == nil && info.Mode().Type() == os.ModeSocket {
		if other, err := (&net.Dialer{}).DialContext(ctx, "unix", socket); err == nil {
			return nil, errors.Join(fmt.Errorf(
				"expected a socket that is not in use, got %q, on which another process listens; stop that, or choose another path", socket,
			), other.Close())
		}
		if err := os.Remove(socket); err != nil {
			return nil, fmt.Errorf("remove the socket of an earlier process: %w", err)
		}
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "unix", socket)
	if err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	const userAndGroup = 0o660
	if err := os.Chmod(socket, userAndGroup); err != nil {
		return nil, errors.Join(fmt.Errorf("set the mode of the socket: %w", err), listener.Close())
	}
	return listener, nil
}

// ServeOn serves a driver on a listener, which it closes, until ctx ends. Errors: no driver, or
// those of the listener.
func ServeOn(ctx context.Context, listener net.Listener, served Served) error {
	if served.Driver == nil {
		return errors.Join(errors.New("expected a driver, got none; set Served.Driver"), listener.Close())
	}
	server := grpc.NewServer(
		grpc.MaxRecvMsgSize(maxRequest), grpc.MaxHeaderListSize(maxMetadata), grpc.ConnectionTimeout(negotiationTimeout),
		grpc.StaticStreamWindowSize(streamWindow), grpc.StaticConnWindowSize(connectionWindow),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: pingTimeout, PermitWithoutStream: true}),
		grpc.UnaryInterceptor(guardCall), grpc.StreamInterceptor(guardStream), grpc.WaitForHandlers(true),
	)
	driverv1.RegisterNegotiationServer(server, negotiation{served: served})
	driverv1.RegisterDriverServer(server, newService(served.Driver))
	serving := health.NewServer()
	serving.SetServingStatus(driverv1.Driver_ServiceDesc.ServiceName, healthv1.HealthCheckResponse_SERVING)
	healthv1.RegisterHealthServer(server, serving)

	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	serving.Shutdown()
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
	defer cancel()
	defer context.AfterFunc(end, server.Stop)()
	server.GracefulStop()
	return <-ended
}

// guardCall runs a call with the trace and the time of the caller, a deadline, and an end to
// panics.
func guardCall(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (resp any, err error) {
	defer recovered(ctx, &err)
	ctx, cancel := context.WithTimeout(timed(traced(ctx), clock.RealClock{}.Now()), callTimeout)
	defer cancel()
	return handler(ctx, req)
}

// guardStream does the same for a call with pages.
func guardStream(srv any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, handler grpc.StreamHandler) (err error) {
	defer recovered(stream.Context(), &err)
	ctx, cancel := context.WithTimeout(timed(traced(stream.Context()), clock.RealClock{}.Now()), callTimeout)
	defer cancel()
	return handler(srv, guardedStream{ServerStream: stream, context: func() context.Context { return ctx }})
}

// guardedStream is a stream with another context.
type guardedStream struct {
	grpc.ServerStream

	context func() context.Context
}

// Context returns the context with the deadline.
func (s guardedStream) Context() context.Context { return s.context() }

// recovered turns a panic of a driver into an error of its call. The value has no secrets, see
// driver.Redacted.
func recovered(ctx context.Context, err *error) {
	if fault := recover(); fault != nil {
		text := driver.Clean(fmt.Sprint(fault))
		klog.FromContext(ctx).Error(nil, "Driver panicked", "panic", text, "stack", string(debug.Stack()))
		*err = status.Errorf(codes.Internal, "the driver panicked: %s", text)
	}
}

// negotiation introduces the driver.
type negotiation struct {
	driverv1.UnimplementedNegotiationServer

	served Served
}

// Negotiate returns the version and the capabilities of the driver.
func (n negotiation) Negotiate(context.Context, *driverv1.NegotiateRequest) (*driverv1.NegotiateResponse, error) {
	answer := &driverv1.NegotiateResponse{
		Versions: []uint32{version}, Provider: n.served.Provider, Driver: n.served.Version,
		Capabilities: []driverv1.Capability{driverv1.Capability_CAPABILITY_UNKNOWN_FIELDS},
	}
	if !n.served.NeverInitializes {
		answer.Capabilities = append(answer.Capabilities, driverv1.Capability_CAPABILITY_INITIALIZE)
	}
	if _, sweeps := driver.SweeperOf(n.served.Driver); sweeps {
		answer.Capabilities = append(answer.Capabilities, driverv1.Capability_CAPABILITY_SWEEP)
	}
	return answer, nil
}
