package plugin

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"google.golang.org/grpc/codes"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/machine-controller-fleet/machine-controller-fleet/driver"
	driverv1 "github.com/machine-controller-fleet/machine-controller-fleet/driver/plugin/v1"
)

// agreement is the result of the negotiation on a connection.
type agreement struct {
	// connection is the number of the connection.
	connection int64
	// driver is the version of the driver's build.
	driver       string
	capabilities []driverv1.Capability
	// refusal is why the driver is not used; nil when it is.
	refusal error
}

func (a *agreement) can(what driverv1.Capability) bool { return slices.Contains(a.capabilities, what) }

// refusalError is why a driver is not used. It lasts as long as the connection.
type refusalError struct{ why string }

// Error returns the reason.
func (e *refusalError) Error() string { return e.why }

// errNotServing is the report of a driver that it is not healthy.
var errNotServing = errors.New("the driver reports that it does not serve now")

// errReplaced is that another connection was created during a negotiation, so that it is not known
// with which process it was.
var errReplaced = errors.New("the connection was replaced")

// question is a negotiation that is in progress, and whose result all calls share.
type question struct {
	done chan struct{}
	err  error // is valid when done is closed
}

// agree returns when the driver on the present connection may be used. Errors: a *refusalError, an
// error of gRPC, errNotServing, or that of ctx.
func (c *Client) agree(ctx context.Context) error {
	if a := c.agreement.Load(); a != nil && a.connection == c.connections.Load() {
		return a.refusal
	}
	asked := c.ask() //nolint:contextcheck // calls share a negotiation, which none of them ends
	select {
	case <-asked.done:
		return asked.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// ask begins a negotiation, unless one is in progress.
func (c *Client) ask() *question {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.asking != nil {
		return c.asking
	}
	q := &question{done: make(chan struct{})}
	c.asking = q
	c.running.Go(func() {
		ctx, cancel := context.WithTimeout(c.lifetime, negotiationTimeout)
		defer cancel()
		q.err = errReplaced
		for errors.Is(q.err, errReplaced) {
			q.err = c.negotiate(ctx)
		}
		c.mu.Lock()
		c.asking = nil
		c.mu.Unlock()
		close(q.done)
	})
	return q
}

// negotiate introduces the fleet, and records what the driver answers. Errors: errReplaced, and
// those of agree.
func (c *Client) negotiate(ctx context.Context) error {
	connection := c.connections.Load()
	answer, err := driverv1.NewNegotiationClient(c.conn).
		Negotiate(ctx, &driverv1.NegotiateRequest{Versions: []uint32{version}, Fleet: c.settings.Fleet})
	a := &agreement{connection: connection, driver: driver.Clean(answer.GetDriver()), capabilities: answer.GetCapabilities()}
	switch {
	case status.Code(err) == codes.Unimplemented:
		a.refusal = &refusalError{fmt.Sprintf("the process at %s does not have the driver protocol; start a driver there", c.settings.Socket)}
	case err != nil:
		return err
	default:
		a.refusal = c.refusal(answer)
	}
	if a.refusal != nil {
		a.capabilities = nil
	} else if err := c.checkHealth(ctx); err != nil {
		return err
	}
	if c.connections.Load() != connection {
		return errReplaced
	}
	c.agreement.Store(a)
	return a.refusal
}

// refusal returns why a driver cannot be used; nil when it can.
func (c *Client) refusal(answer *driverv1.NegotiateResponse) error {
	if versions := answer.GetVersions(); !slices.Contains(versions, version) {
		const shown = 10
		return &refusalError{
			fmt.Sprintf("the driver at %s has versions %v of the driver protocol, and this fleet has version %d; upgrade the one that is older",
				c.settings.Socket, versions[:min(len(versions), shown)], version),
		}
	}
	if p := answer.GetProvider(); p != "" && p != c.settings.Provider {
		return &refusalError{fmt.Sprintf("the driver at %s is for provider %q, and is configured for %q; correct the socket or the provider",
			c.settings.Socket, driver.Clean(p), c.settings.Provider)}
	}
	return nil
}

// checkHealth returns an error unless the driver reports that it serves.
func (c *Client) checkHealth(ctx context.Context) error {
	answer, err := healthv1.NewHealthClient(c.conn).Check(ctx, &healthv1.HealthCheckRequest{Service: driverv1.Driver_ServiceDesc.ServiceName})
	if err != nil {
		return err
	}
	if answer.GetStatus() != healthv1.HealthCheckResponse_SERVING {
		return errNotServing
	}
	return nil
}
