package leases

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/pacing"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/required"
	"github.com/machine-controller-fleet/machine-controller-fleet/membership"
)

// Config describes a Store. All fields are required.
type Config struct {
	// Client is the configuration for the control cluster; its transport has to check what each
	// request needs, and that an API server has written each answer: only its own status proves that a
	// Lease is missing, or that a request had no effect.
	Client *rest.Config
	// Namespace and Fleet identify the Leases.
	Namespace, Fleet string
	// Timeout bounds each request.
	Timeout time.Duration
	// Quiet is the time without any event after which a watch is replaced. A fleet renews a Lease
	// every few seconds.
	Quiet time.Duration
	// Clock is the clock of the watch.
	Clock clock.WithTicker
	// Now returns the moment on both clocks.
	Now func() membership.Moment
}

// Store reads, writes and watches the Leases of one fleet. Create one with NewStore.
type Store struct {
	cfg    Config
	leases coordinationclient.LeaseInterface
	client *http.Client
	// refusals are how often requests of a verb that were refused are logged.
	refusals *pacing.Rates[membership.Verb]
}

// Validate returns an error that names the fields that are missing.
func (c Config) Validate() error { return required.Fields(c) }

// NewStore returns a Store with its own connections and no limit of rate: the work of tenants does
// not delay it. It sends no request. Errors: fields that are missing, and a configuration from
// which no client can be created.
func NewStore(cfg Config) (*Store, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	own := rest.CopyConfig(cfg.Client)
	own.QPS, own.RateLimiter = -1, nil
	// With HTTP/1.1 a request that times out closes its connection; with HTTP/2 all requests would
	// share one that may be dead.
	own.NextProtos = []string{"http/1.1"}
	// Each replica receives each renewal of all replicas: protobuf is half the bytes of JSON, and a
	// fraction of the CPU.
	own.ContentType = runtime.ContentTypeProtobuf
	own.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	client, err := rest.HTTPClientFor(own)
	if err != nil {
		return nil, fmt.Errorf("create the connections for Leases: %w", err)
	}
	coordination, err := coordinationclient.NewForConfigAndClient(own, client)
	if err != nil {
		return nil, fmt.Errorf("create the client for Leases: %w", err)
	}
	return &Store{
		cfg: cfg, leases: coordination.Leases(cfg.Namespace), client: client,
		refusals: pacing.NewRates[membership.Verb](1, refusalInterval),
	}, nil
}

// Do sends one request and returns its reply, at the latest after the timeout.
func (s *Store) Do(ctx context.Context, req membership.Request) membership.Reply {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.Timeout)
	defer cancel()
	reply := membership.Reply{ID: req.ID, Sent: s.cfg.Now()}
	var err error
	switch req.Verb {
	case membership.Get:
		reply.Lease, err = s.leases.Get(ctx, req.Name, metav1.GetOptions{})
	case membership.List:
		reply.Leases, err = s.list(ctx)
	case membership.Create:
		reply.Lease, err = s.leases.Create(ctx, req.Lease, metav1.CreateOptions{})
	case membership.Update:
		reply.Lease, err = s.update(ctx, req.Lease)
	default:
		err = &invalidError{fmt.Sprintf("expected a verb of membership, got %q", req.Verb)}
	}
	reply.Outcome = outcomeOf(err)
	if status := apierrors.APIStatus(nil); reply.Outcome == membership.Refused && errors.As(err, &status) {
		s.logRefusal(ctx, req, err)
	}
	if reply.Outcome != membership.Done {
		reply.Lease, reply.Leases = nil, nil
	}
	if reply.Outcome == membership.Unanswered {
		utilnet.CloseIdleConnectionsFor(s.client.Transport)
	}
	return reply
}

// refusalInterval is the time between two lines of the log about requests that are refused.
const refusalInterval = time.Minute

// logRefusal logs why a request was refused, since the reply does not have it: a replica without
// the rights, or whom a policy refuses, sends the same request again and again.
func (s *Store) logRefusal(ctx context.Context, req membership.Request, err error) {
	now := s.cfg.Clock.Now()
	if s.refusals.Wait(req.Verb, now) > 0 {
		return
	}
	s.refusals.Count(req.Verb, now)
	klog.FromContext(ctx).Error(err, "API server refused a request for the Leases of the fleet; retrying", "lease", req.Name)
}

func (s *Store) list(ctx context.Context) ([]*coordinationv1.Lease, error) {
	found, err := s.leases.List(ctx, metav1.ListOptions{LabelSelector: s.selector()})
	if err != nil {
		return nil, err
	}
	leases := make([]*coordinationv1.Lease, len(found.Items))
	for i := range found.Items {
		leases[i] = &found.Items[i]
	}
	return leases, nil
}

// update refuses what an API server would accept: a PUT without a UID on a Lease that is gone would
// create a new one, and one without a resourceVersion would overwrite a version that was never
// read.
func (s *Store) update(ctx context.Context, lease *coordinationv1.Lease) (*coordinationv1.Lease, error) {
	if lease == nil || lease.UID == "" || lease.ResourceVersion == "" {
		return nil, &invalidError{"expected a Lease with UID and resourceVersion to update"}
	}
	return s.leases.Update(ctx, lease, metav1.UpdateOptions{})
}

func (s *Store) selector() string {
	return metav1.FormatLabelSelector(&metav1.LabelSelector{MatchLabels: map[string]string{v1alpha1.LabelFleet: s.cfg.Fleet}})
}

// invalidError is the error of a request that is not sent because it is invalid.
type invalidError struct{ message string }

func (e *invalidError) Error() string { return e.message }

// outcomeOf returns the outcome of a client's error.
func outcomeOf(err error) membership.Outcome {
	if err == nil {
		return membership.Done
	}
	if wrong := (*invalidError)(nil); errors.As(err, &wrong) || notSent(err) {
		return membership.Refused
	}
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return membership.Unanswered
	}
	switch code := status.Status().Code; {
	case apierrors.IsConflict(err):
		return membership.Conflict
	case apierrors.IsAlreadyExists(err):
		return membership.Exists
	case apierrors.IsNotFound(err):
		return membership.NotFound
	case code == http.StatusRequestTimeout, code < 400, code >= 500:
		return membership.Unanswered
	}
	return membership.Refused
}

// notSent reports whether the transport refused the request: such an error has a method NotSent
// that returns true.
func notSent(err error) bool {
	refusal, ok := errors.AsType[interface {
		error
		NotSent() bool
	}](err)
	return ok && refusal.NotSent()
}
