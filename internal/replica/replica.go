package replica

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/machine-controller-fleet/machine-controller-fleet/driver"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/autoscaler"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/kubeclient"
	pagewatch "github.com/machine-controller-fleet/machine-controller-fleet/internal/page/watch"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/target/reach/check"
	shardsession "github.com/machine-controller-fleet/machine-controller-fleet/shard/session"
)

// Environment has what differs by where a replica runs. All fields but Target and TargetTransport
// are required.
type Environment struct {
	// Control and Target are the connections to the clusters; Target is nil when there is no target
	// cluster.
	Control, Target *rest.Config
	// Leases is the connection to the control cluster for Leases; nil means Control.
	Leases *rest.Config
	// Drivers returns the drivers by provider, without the Fence before them. share is the part of the
	// fleet's work that the replica has now, and now the time of the control cluster.
	Drivers func(share func() float64, now func() time.Time) (map[string]driver.Driver, error)
	// TargetTransport returns the transport to the API server of a namespace's target cluster, by its
	// URL, for tests. Nil means the network.
	TargetTransport func(server string) http.RoundTripper
	Tracer          trace.Tracer
	Registry        *prometheus.Registry
	// Die terminates the process immediately.
	Die func(reason string)
	// Clock is that of the process.
	Clock clock.WithTickerAndDelayedExecution
}

// Replica is one replica, wired. New returns it.
type Replica struct {
	*session

	clients     clients
	replica     *shardsession.Replica
	slots       *slots
	running     []controller
	autoscalers *autoscaler.Server
	page        *pagewatch.Watch // nil unless Options.ServePage
	apiServers  check.Servers
	events      events.EventBroadcaster
}

// controller is a part of a replica that runs until ctx ends.
type controller interface{ Run(ctx context.Context) }

// New returns a replica that has not begun to run. Errors: invalid settings or configurations.
func New(o Options, around Environment) (*Replica, error) {
	d, err := newDeps(o, around)
	if err != nil {
		return nil, err
	}
	all, err := newControllers(d)
	if err != nil {
		return nil, err
	}
	if err := linkControllers(d, all); err != nil {
		return nil, err
	}
	registry := around.Registry
	registry.MustRegister(all.collectors...)
	d.slots.count(registry)
	d.registerClocks(registry)
	countBreakers(registry, all.remediation.Breakers())
	servers := d.servers()
	servers.Register(registry)
	protocol, err := newProtocol(d, all)
	if err != nil {
		return nil, err
	}
	autoscalers, err := newAutoscalers(d, registry)
	if err != nil {
		return nil, err
	}
	shown, err := newPageSource(d)
	if err != nil {
		return nil, err
	}
	return &Replica{
		session:     d.session,
		clients:     d.clients,
		replica:     protocol,
		slots:       d.slots,
		running:     all.running,
		autoscalers: autoscalers,
		page:        shown,
		apiServers:  servers,
		events:      d.broadcaster,
	}, nil
}

// Run runs the session, with the watches and the controllers around it, until the session has left,
// which begins when leave is closed, or cannot continue. The end of ctx ends all of them without a
// hand-over.
func (f *Replica) Run(ctx context.Context, leave <-chan struct{}) error {
	ctx = klog.NewContext(ctx, klog.FromContext(ctx).WithValues("replica", f.settings.Replica))
	working, stop := context.WithCancel(ctx)
	// The watchdog runs until run returns: work that does not end with the session has to end with the
	// process.
	watching, unwatch := context.WithCancel(ctx)
	defer unwatch()
	go f.watch(watching)
	var running sync.WaitGroup
	defer running.Wait()
	defer stop()
	if err := f.events.StartRecordingToSinkWithContext(working); err != nil {
		return fmt.Errorf("start to record Events: %w", err)
	}
	defer f.events.Shutdown()
	running.Go(func() { f.slots.Run(working) })
	for _, server := range f.apiServers {
		running.Go(func() { server.Run(working) })
	}
	for _, c := range f.running {
		running.Go(func() { c.Run(working) })
	}
	err := f.runSession(working, leave)
	if err != nil {
		f.pause(leave)
	}
	return err
}

// Close releases the file lock of a replica that has ended.
func (f *Replica) Close() { _ = f.lock.Close() }

// ControlClient returns the client of the control cluster, which has the Fence below it.
func (f *Replica) ControlClient() kubeclient.Interface { return f.clients.control }

// Autoscalers returns the server for cluster-autoscalers; nil unless Options.ServeAutoscalers.
func (f *Replica) Autoscalers() *autoscaler.Server { return f.autoscalers }

// DebugPages returns the debug pages.
func (f *Replica) DebugPages() map[string]http.Handler {
	pages := map[string]http.Handler{"/debug/slots": http.HandlerFunc(f.replica.ServeSlots), "/debug/apiservers": f.apiServers}
	if f.faultPoint != nil {
		pages["/debug/faultpoints"] = f.faultPoint
	}
	return pages
}
