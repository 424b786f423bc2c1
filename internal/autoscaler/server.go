package autoscaler

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"runtime/debug"
	"slices"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/tap"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	authorizationclient "k8s.io/client-go/kubernetes/typed/authorization/v1"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	"k8s.io/utils/lru"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	machineclient "github.com/machine-controller-fleet/machine-controller-fleet/client/clientset/versioned/typed/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/autoscaler/externalgrpc"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/autoscaler/groups"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/bounded"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/patch"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/required"
)

const (
	// window is how many bytes of a request arrive before the checks of its call.
	window = 64 << 10
	// maxHeaders is how many bytes the headers of a call have at most.
	maxHeaders = 16 << 10
	// maxStreams is how many calls of one connection are in flight.
	maxStreams = 64
	// maxCall is how long a call may take. A client waits for 5 s by default.
	maxCall = 30 * time.Second
	// handshake is how long a new connection may take until it is authenticated.
	handshake = 10 * time.Second
	// connectionAge is after which time a connection is closed, so that clients spread over replicas
	// that were added, and connectionIdle after which time without a call.
	connectionAge, connectionGrace = 30 * time.Minute, time.Minute
	connectionIdle                 = 10 * time.Minute
)

// Config has the settings of a Server. All fields are required.
type Config struct {
	// Machines reads and writes the machine API, and Reviews reviews access, both in the control
	// cluster.
	Machines machineclient.MachineV1alpha1Interface
	Reviews  authorizationclient.SubjectAccessReviewsGetter
	// ForUser returns a context for changes of MachineDeployments of a namespace on behalf of a user.
	ForUser func(ctx context.Context, namespace, user string) context.Context
	// Serves returns why the fleet does not serve a namespace, "" if it does.
	Serves func(namespace string) string
	// Off returns why the fleet does nothing in a namespace that it serves, "" if it does.
	Off func(namespace string) string
	// Held reports whether deletions are held in a namespace, and why.
	Held func(namespace string) (why string, held bool)
	// MaxPods returns how many pods the machine configuration of a MachineDeployment allows on a Node;
	// it is not ok where that is not set. It has to be the same in all replicas.
	MaxPods func(namespace, deployment string) (n int64, ok bool)
	// Wall is the time of the control cluster, and Clock that of the process.
	Wall, Clock clock.PassiveClock
	Metrics     *Metrics
}

// Validate returns an error that names missing fields.
func (c *Config) Validate() error { return required.Fields(*c) }

// Server serves clients. New returns one.
type Server struct {
	cfg     Config
	service *service
	access  *access
	limits  *limits
}

// New returns a Server that does not serve yet. Errors: missing fields.
func New(cfg Config) (*Server, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	held := func(namespace string) string {
		why, is := cfg.Held(namespace)
		if is && why == "" {
			why = "it is not known yet whether they are held"
		}
		return why
	}
	r := &reader{
		machines: cfg.Machines, clock: cfg.Clock, wall: cfg.Wall.Now, held: held, off: cfg.Off, maxPods: cfg.MaxPods,
		read: cfg.Metrics.read, last: lru.New(rememberedNamespaces),
	}
	w := &writer{
		reader: r, machines: cfg.Machines, forUser: cfg.ForUser, wall: cfg.Wall.Now, held: held, off: cfg.Off,
		commits: patch.New(func(namespace string) patch.Patcher[*v1alpha1.MachineDeployment] {
			return cfg.Machines.MachineDeployments(namespace)
		}),
	}
	return &Server{
		cfg: cfg, service: &service{reader: r, writer: w}, access: newAccess(cfg.Reviews, cfg.Clock), limits: newLimits(cfg.Clock),
	}, nil
}

// Serve serves on a listener, which it closes, until ctx ends. Clients are authenticated by the
// settings of TLS, which have to require and verify their certificates. Errors: those of the
// listener. It returns nil when ctx has ended.
func (s *Server) Serve(ctx context.Context, listener net.Listener, config *tls.Config) error {
	log := klog.FromContext(ctx)
	server := grpc.NewServer(
		grpc.Creds(credentials.NewTLS(config)), grpc.ConnectionTimeout(handshake),
		grpc.MaxRecvMsgSize(maxRequest), grpc.ForceServerCodecV2(newCodec()),
		grpc.MaxHeaderListSize(maxHeaders), grpc.MaxConcurrentStreams(maxStreams),
		grpc.KeepaliveParams(keepalive.ServerParameters{
			MaxConnectionIdle: connectionIdle, MaxConnectionAge: connectionAge, MaxConnectionAgeGrace: connectionGrace,
		}),
		grpc.InTapHandle(bounds), grpc.StaticStreamWindowSize(window),
	)
	server.RegisterService(s.methods(log), s.service)
	// Calls in flight end: the process ends later, when its slots are handed over.
	stop := context.AfterFunc(ctx, server.GracefulStop)
	defer stop()
	if err := server.Serve(listener); err != nil && ctx.Err() == nil && !errors.Is(err, grpc.ErrServerStopped) {
		return fmt.Errorf("serve autoscalers: %w", err)
	}
	return nil
}

// writes are the methods that change something.
var writes = map[string]bool{
	"NodeGroupIncreaseSize": true, "NodeGroupDeleteNodes": true, "NodeGroupDecreaseTargetSize": true,
}

// bounds has a call end maxCall after its headers, whether its request has arrived or not.
func bounds(ctx context.Context, _ *tap.Info) (context.Context, error) {
	ctx, cancel := context.WithTimeout(ctx, maxCall)
	context.AfterFunc(ctx, cancel) // gRPC ends the one above it with the call
	return ctx, nil
}

// methods returns the service, whose calls are checked before their requests are read. An
// interceptor would be called afterwards.
func (s *Server) methods(log klog.Logger) *grpc.ServiceDesc {
	desc := externalgrpc.CloudProvider_ServiceDesc
	desc.Methods = slices.Clone(desc.Methods)
	for i, method := range desc.Methods {
		desc.Methods[i].Handler = func(
			service any, ctx context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor,
		) (any, error) {
			return s.call(klog.NewContext(ctx, log), method.MethodName, func(ctx context.Context) (any, error) {
				return method.Handler(service, ctx, decode, nil)
			})
		}
	}
	return &desc
}

// call serves one call, within the bounds of its client, and counts it. Its request is read and
// answered by serve.
func (s *Server) call(ctx context.Context, method string, serve func(context.Context) (any, error)) (answer any, err error) {
	began := s.cfg.Clock.Now()
	defer func() {
		if failure := recover(); failure != nil {
			klog.FromContext(ctx).Error(nil, "Panicked in a call of an autoscaler", "panic", fmt.Sprint(failure), "stack", string(debug.Stack()))
			answer, err = nil, status.New(codes.Internal, "the fleet has a defect in this call; see its log").Err()
		}
		err = statusOf(err)
		s.cfg.Metrics.called(method, status.Code(err), s.cfg.Clock.Since(began))
		if err != nil {
			klog.FromContext(ctx).V(2).Info("Call of an autoscaler failed", "operation", method, "err", err)
		}
	}()
	who, err := s.authenticate(ctx)
	if err != nil {
		return nil, err
	}
	client, err := s.limits.admit(who, writes[method])
	if err != nil {
		return nil, err
	}
	defer client.leave()
	if err := s.access.check(ctx, who); err != nil {
		return nil, err
	}
	if why := s.cfg.Serves(who.namespace); why != "" {
		return nil, status.Errorf(codes.FailedPrecondition, "this fleet does not serve namespace %s: %s", who.namespace, why)
	}
	done, err := client.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	return serve(context.WithValue(ctx, clientKey{}, who))
}

// authenticate returns the client that the verified certificate of a connection names.
func (*Server) authenticate(ctx context.Context) (identity, error) {
	from, ok := peer.FromContext(ctx)
	if !ok {
		return identity{}, status.New(codes.Unauthenticated, "expected a connection with TLS and a client's certificate, got none").Err()
	}
	info, ok := from.AuthInfo.(credentials.TLSInfo)
	if !ok || len(info.State.VerifiedChains) == 0 || len(info.State.VerifiedChains[0]) == 0 {
		return identity{}, status.New(codes.Unauthenticated, "expected a verified certificate of the client, got none").Err()
	}
	who, err := identityOf(info.State.VerifiedChains[0][0])
	if err != nil {
		return identity{}, status.New(codes.Unauthenticated, err.Error()).Err()
	}
	return who, nil
}

type clientKey struct{}

// clientOf returns the client of a call that has passed the checks.
func clientOf(ctx context.Context) identity {
	who, _ := ctx.Value(clientKey{}).(identity)
	return who
}

// statusOf returns an error with a code that a client understands.
func statusOf(err error) error {
	if err == nil {
		return nil
	}
	if _, ok := status.FromError(err); ok {
		return err
	}
	message := bounded.Text(err.Error(), bounded.Message)
	if refusal, ok := errors.AsType[*groups.RefusedError](err); ok {
		return status.New(codeOf(refusal.Code), message).Err()
	}
	switch {
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return status.FromContextError(err).Err()
	case apierrors.IsNotFound(err):
		return status.New(codes.NotFound, message).Err()
	case apierrors.IsInvalid(err), apierrors.IsForbidden(err):
		return status.New(codes.FailedPrecondition, message).Err()
	}
	return status.New(codes.Unavailable, message).Err()
}

func codeOf(code groups.Code) codes.Code {
	switch code {
	case groups.InvalidArgument:
		return codes.InvalidArgument
	case groups.NotFound:
		return codes.NotFound
	case groups.FailedPrecondition:
		return codes.FailedPrecondition
	case groups.Unimplemented:
		return codes.Unimplemented
	}
	return codes.Unknown
}
