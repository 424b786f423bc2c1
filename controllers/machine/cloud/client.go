package cloud

import (
	"context"
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machine/cloud/breaker"
	"github.com/machine-controller-fleet/machine-controller-fleet/driver"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/objectcache"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/required"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/runner"
)

// Timeout bounds one call of a driver. Clouds answer in seconds; a longer call would occupy a
// worker, and is repeated later.
const Timeout = time.Minute

// ErrCrowded means that no call was sent because too many with the same credentials are in flight.
// It is not a failure: the machine is reconciled again after CrowdedPause.
var ErrCrowded = errors.New("too many calls of the driver are in flight with the same credentials")

// CrowdedPause is the time from ErrCrowded to the next pass of the machine.
const CrowdedPause = time.Second

// Config configures a Client. All but ControlCluster, Called and MostCalls are required.
type Config struct {
	// View shows the root of a machine, which gets the Event of an open circuit breaker.
	View   *objectcache.View
	Events events.EventRecorder
	// Clock is that of the process: what it measures does not outlive the process.
	Clock clock.PassiveClock
	// Wake enqueues a machine whose call was held, when the account works again.
	Wake func(types.NamespacedName)
	// ControlCluster returns the ID of the control cluster, or "" while it is not known; see
	// driver.Target. nil means that it never is.
	ControlCluster func() string
	// Called receives each call that has ended: its class, when it began, and its error. It must
	// return at once; it may be nil.
	Called func(class *v1alpha1.MachineClass, began time.Time, err error)
	// MostCalls is how many calls are in flight with one set of credentials; less than 1 means 1.
	MostCalls int
}

// Validate returns an error that names the required fields that are not set.
func (c Config) Validate() error {
	return required.Fields(c, "ControlCluster", "Called", "MostCalls")
}

// Client calls drivers for machines. Create it with New; it is safe for concurrent use.
type Client struct {
	cfg      Config
	inFlight *inFlight
	accounts *accounts
}

// New returns a client. Errors: those of Config.Validate.
func New(cfg Config) (*Client, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	return &Client{cfg: cfg, inFlight: newInFlight(cfg.MostCalls), accounts: newAccounts(cfg.Clock, cfg.Wake)}, nil
}

// Call is a call for a machine.
type Call struct {
	Op driver.Op
	// Target is complete but for the control cluster.
	Target driver.Target
	// SecretVersions identify what the Secrets of the class contain.
	SecretVersions string
}

// Failure is a call that has failed or that was held.
type Failure struct {
	Code       driver.Code
	RetryAfter time.Duration
	Message    string
	// Held reports whether no call was sent because the circuit breaker of the account is open.
	Held bool
}

// Do sends a call, by send, unless it is held. Errors, which end the pass: ErrCrowded, the end of
// ctx or of the ownership. All others are a Failure.
func (c *Client) Do(ctx context.Context, call Call, send func(context.Context, driver.Target) error) (*Failure, error) {
	used := credentialsOf(call.Target.Class)
	if !c.inFlight.begin(used) {
		return nil, ErrCrowded
	}
	defer c.inFlight.end(used)
	of := accountCallOf(call)
	if held, allowed := c.accounts.begin(&of); !allowed {
		return c.hold(ctx, call.Target.Machine, of, held), nil
	}
	outcome, message := breaker.Outcome{Ended: true}, "" // also of a driver that panics
	defer func() { c.end(ctx, of, outcome, message) }()
	began := c.cfg.Clock.Now()
	err := c.send(ctx, call.Target, send)
	if c.cfg.Called != nil && ctx.Err() == nil && !runner.NotOurs(err) {
		c.cfg.Called(call.Target.Class, began, err)
	}
	switch {
	case err == nil:
		outcome.Ended = false
		return nil, nil //nolint:nilnil // no failure
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case runner.NotOurs(err):
		return nil, err
	}
	failure := &Failure{Code: driver.CodeOf(err), RetryAfter: driver.RetryAfterOf(err), Message: driver.MessageOf(err)}
	outcome, message = breaker.Outcome{Code: failure.Code, RetryAfter: failure.RetryAfter, Pending: driver.IsPending(err)}, failure.Message
	return failure, nil
}

func (c *Client) send(ctx context.Context, target driver.Target, send func(context.Context, driver.Target) error) error {
	ctx, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	return send(ctx, c.complete(target))
}

// complete returns a target with the control cluster.
func (c *Client) complete(target driver.Target) driver.Target {
	if c.cfg.ControlCluster != nil {
		target.ControlCluster = c.cfg.ControlCluster()
	}
	return target
}

// Collectors return the metrics, with a series for each provider that has a driver.
func (c *Client) Collectors(providers []string) []prometheus.Collector {
	return c.accounts.collectors(providers)
}

// Forget drops a machine that is gone.
func (c *Client) Forget(machine types.NamespacedName) { c.accounts.forget(machine) }
