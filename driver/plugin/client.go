package plugin

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"k8s.io/klog/v2"

	"github.com/machine-controller-fleet/machine-controller-fleet/driver"
	driverv1 "github.com/machine-controller-fleet/machine-controller-fleet/driver/plugin/v1"
)

// Settings are the settings of a Client.
type Settings struct {
	// Provider is the value of MachineClass.provider that the driver is for.
	Provider string
	// Socket is the absolute path of the unix socket on which the driver's process listens.
	Socket string
	// Fleet is the version of the fleet's build, for logs of the driver.
	Fleet string
	// Ownership returns the ownership under which a call is sent; ok is false when there is none. nil
	// means that there never is.
	Ownership func(ctx context.Context) (o Ownership, ok bool)
	// Share returns the part of the fleet's work that this replica has now, from 0 to 1; drivers
	// divide the limits of their cloud by it. nil means that it is not known.
	Share func() float64
	// Now returns the time of the control cluster, by which drivers judge times on Machines. nil means
	// that it is not known.
	Now func() time.Time
}

// Client is a driver in another process. It has one connection, which it opens again when it is
// lost.
type Client struct {
	settings Settings
	conn     *grpc.ClientConn
	remote   driverv1.DriverClient
	lifetime context.Context //nolint:containedctx // of the connection, which outlives calls; Scope has none
	end      context.CancelFunc
	running  sync.WaitGroup

	connections atomic.Int64 // how many have been opened
	agreement   atomic.Pointer[agreement]
	mu          sync.Mutex
	asking      *question // nil while no negotiation is in progress
}

var (
	_ driver.Driver  = (*Client)(nil)
	_ driver.Sweeper = (*Client)(nil)
)

// Dial returns a Client that connects until ctx ends or Close is called. It does not wait for the
// connection: until there is one, calls fail with driver.Unavailable.
//
// Errors: no provider, and what cannot be the path of a unix socket.
func Dial(ctx context.Context, s Settings) (*Client, error) {
	if s.Provider == "" {
		return nil, errors.New("expected the name of a provider, got none; name the one that the driver is for")
	}
	if err := CheckSocket(s.Socket); err != nil {
		return nil, err
	}
	c := &Client{settings: s}
	var err error
	c.conn, err = grpc.NewClient("passthrough:///driver",
		grpc.WithContextDialer(c.dial), grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithNoProxy(),
		grpc.WithDisableServiceConfig(), grpc.WithDisableRetry(), grpc.WithIdleTimeout(0),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: firstRetry, MaxDelay: lastRetry, Multiplier: 2, Jitter: 0.2},
			MinConnectTimeout: negotiationTimeout,
		}),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: pingAfter, Timeout: pingTimeout, PermitWithoutStream: true}),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxAnswer), grpc.MaxCallSendMsgSize(maxRequest)),
		grpc.WithMaxHeaderListSize(maxMetadata),
		grpc.WithStaticStreamWindowSize(streamWindow), grpc.WithStaticConnWindowSize(connectionWindow),
	)
	if err != nil {
		return nil, fmt.Errorf("create a client of gRPC: %w", err)
	}
	c.remote = driverv1.NewDriverClient(c.conn)
	c.lifetime, c.end = context.WithCancel(ctx)
	c.running.Go(c.stayConnected)
	return c, nil
}

// Close ends the connection and all calls.
func (c *Client) Close() error {
	c.end()
	err := c.conn.Close()
	c.running.Wait()
	return err
}

// Ready waits until there is a connection and returns nil if the driver may be used. Errors: why it
// may not, that of ctx, and those of gRPC.
func (c *Client) Ready(ctx context.Context) error {
	for state := c.conn.GetState(); state != connectivity.Ready; state = c.conn.GetState() {
		if !c.conn.WaitForStateChange(ctx, state) {
			return fmt.Errorf("wait for a driver at %s: %w", c.settings.Socket, context.Cause(ctx))
		}
	}
	return c.agree(ctx)
}

// dial opens a connection, and counts it.
func (c *Client) dial(ctx context.Context, _ string) (net.Conn, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", c.settings.Socket)
	if err == nil {
		c.connections.Add(1)
	}
	return conn, err
}

// stayConnected connects, negotiates on each connection, and logs what has changed. gRPC waits
// between attempts.
func (c *Client) stayConnected() {
	log := klog.FromContext(c.lifetime).WithValues("provider", c.settings.Provider, "socket", c.settings.Socket)
	connected := false
	for state := c.conn.GetState(); ; state = c.conn.GetState() {
		switch state {
		case connectivity.Idle:
			c.conn.Connect()
		case connectivity.Ready:
			if err := c.agree(c.lifetime); err != nil {
				log.Error(err, "Driver cannot be used")
			} else {
				log.Info("Connected to driver", "version", c.agreement.Load().driver)
			}
			connected = true
		case connectivity.TransientFailure:
			if connected {
				log.Info("Lost connection to driver; connecting again")
			}
			connected = false
		case connectivity.Connecting:
		case connectivity.Shutdown:
			return
		}
		if !c.conn.WaitForStateChange(c.lifetime, state) {
			return
		}
	}
}

// Unwrap returns a driver that has a Sweeper if, and only if, the driver in the other process has
// one, see driver.SweeperOf. Before the first connection it has none.
func (c *Client) Unwrap() driver.Driver {
	if a := c.agreement.Load(); a != nil && a.can(driverv1.Capability_CAPABILITY_SWEEP) {
		return struct {
			driver.Driver
			driver.Sweeper
		}{c, c}
	}
	return struct{ driver.Driver }{c}
}
