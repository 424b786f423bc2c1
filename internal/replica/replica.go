package replica

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/client/clientset/versioned/scheme"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machine"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machineclass"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machinedeployment"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machineset"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/node"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/remediation"
	"github.com/machine-controller-fleet/machine-controller-fleet/driver"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/deletion/deletionbudget"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/deletion/deletionlog"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/deletion/holds"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/namespaces"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/objectcache"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/patch"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/runner"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/target"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/target/reach"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/telemetry"
	"github.com/machine-controller-fleet/machine-controller-fleet/shard/assignment"
	"github.com/machine-controller-fleet/machine-controller-fleet/shard/fence"
	shardsession "github.com/machine-controller-fleet/machine-controller-fleet/shard/session"
	"github.com/machine-controller-fleet/machine-controller-fleet/shard/slotlabel/policy"
)

// Environment has what differs by where a replica runs. All fields but target are required.
type Environment struct {
	// Control and target are the connections to the clusters; target is nil when there is no target cluster.
	Control, Target *rest.Config
	// Drivers returns the drivers by provider, without the Fence before them; drivers that have clients of their own put the
	// Fence below these, and below that the metrics of their requests. now is the time of the control cluster.
	Drivers  func(fence *fence.Fence, metrics *telemetry.DriverMetrics, now func() time.Time) (map[string]driver.Driver, error)
	Tracer   trace.Tracer
	Registry *prometheus.Registry
	// Die terminates the process immediately.
	Die func(reason string)
	// Clock is that of the process.
	Clock clock.WithTickerAndDelayedExecution
}

// New returns a replica that has not begun to run. Errors: invalid settings or configurations.
func New(o Options, around Environment) (*Replica, error) {
	registry := around.Registry
	f := &Replica{metrics: runner.NewMetrics(registry), tracer: around.Tracer}
	if o.MCMWorkqueueMetrics {
		f.metrics.RepeatForMCM()
	}
	var err error
	if f.session, err = newSession(o, registry, around); err != nil {
		return nil, err
	}
	if f.clients, err = connect(around, f.session.fence, o.checks()); err != nil {
		return nil, err
	}
	f.session.time.Ahead = f.wall.Ahead
	f.registerClocks(registry)
	if f.drivers, err = f.fencedDrivers(around); err != nil {
		return nil, err
	}
	f.targets = target.None{}
	if f.target != nil {
		f.cluster = target.New(f.target)
		f.cluster.Reach = f.known(f.targetServer, f.targetWall)
		f.cluster.Lead = func() time.Duration { return f.targetWall.AheadOf(f.wall) }
		f.targets = target.Single{Cluster: f.cluster}
	}
	if f.namespaces, err = namespaces.New(f.metadata, o.Namespace); err != nil {
		return nil, err
	}
	f.holds = holds.New(f.namespaces)
	f.budget = &deletionbudget.Budget{
		Namespaces: f.namespaces, Leases: f.control.CoordinationV1(), Default: o.Safety.MaxDeletions, Clock: f.wall,
	}
	f.view = objectcache.NewView()
	f.accounts = newCloudAccounts(f, o.Fleet.Slots)
	f.identity = &controlCluster{namespaces: f.control.CoreV1().Namespaces(), clock: around.Clock}
	f.broadcaster = events.NewBroadcaster(telemetry.ByReplica(&events.EventSinkImpl{Interface: f.control.EventsV1()}, o.Name))
	deletionLog, err := deletionlog.Open(o.Safety.DeletionLog)
	if err != nil {
		return nil, err
	}
	f.deletions = deletionlog.New(f.wall, deletionLog, registry)
	if f.running, err = f.controllers(o); err != nil {
		return nil, err
	}
	registry.MustRegister(f.collectors...)
	f.slots.count(registry)
	countBreakers(registry, f.breakers)
	f.session.servers = f.servers()
	f.session.servers.Register(registry)
	reporter := &shardsession.Reporter{
		Settings: f.session.settings, Metadata: f.metadata, Namespace: o.Namespace, Events: f.recorder(v1alpha1.EventSourceMachineDeployment),
	}
	if err := f.session.protocol(f, reporter); err != nil {
		return nil, err
	}
	return f, nil
}

// Replica is one replica, wired.
type Replica struct {
	clients

	session     *session
	running     []controller
	slots       *slots
	breakers    *remediation.Breakers
	identity    *controlCluster
	view        *objectcache.View
	namespaces  *namespaces.Namespaces
	holds       *holds.Holds
	budget      *deletionbudget.Budget
	drivers     *driver.Registry
	metrics     *runner.Metrics
	collectors  []prometheus.Collector // of the objects in this replica's slots
	tracer      trace.Tracer
	cluster     *target.Cluster // nil when there is none
	targets     target.Resolver
	broadcaster events.EventBroadcaster
	deletions   *deletionlog.Recorder
	accounts    *cloudAccounts
	problemOf   func(ctx context.Context, class types.NamespacedName) (string, error) // the machine controller's
	unserved    atomic.Pointer[reach.Fact]                                            // the last time without a replica

	unservedSlots sync.Map // the last time without a holder, a reach.Fact, by slot label
}

func (f *Replica) recorder(source string) events.EventRecorder {
	return telemetry.Damped(f.broadcaster.NewRecorder(scheme.Scheme, source), clock.RealClock{})
}

type controller interface{ Run(ctx context.Context) }

// controllers returns all controllers; their order does not matter.
func (f *Replica) controllers(o Options) ([]controller, error) {
	spread, err := o.Fleet.Spread()
	if err != nil {
		return nil, err
	}
	if f.slots, err = newSlots(o, f, spread); err != nil {
		return nil, err
	}
	api := f.machines.MachineV1alpha1()
	replacements, err5 := newRemediation(o, f)
	written := patch.NewLatest[*v1alpha1.MachineSet]()
	sets, err2 := machineset.New(machineset.Config{
		Machines: api, Metadata: f.metadata, View: f.view, Events: f.recorder(v1alpha1.EventSourceMachineSet), Deletions: f.deletions,
		Gate:  f.slots.gate(policy.Set),
		Clock: f.wall, Workers: o.ConcurrentSyncs, Metrics: f.metrics, Tracer: f.tracer, CountMinReady: o.Machine.CountMinReady,
		Written: written, Held: f.holds.Held, Rollout: f.rolloutOf, ClassProblem: f.classProblem,
	})
	deployments, err1 := machinedeployment.New(machinedeployment.Config{
		Machines: api, Metadata: f.metadata, View: f.view, Targets: f.targets, Events: f.recorder(v1alpha1.EventSourceMachineDeployment),
		Gate:  f.slots.gate(policy.Deployment),
		Clock: f.wall, Workers: o.ConcurrentSyncs, KeepFromAutoscaler: o.Machine.ScaleDownAnnotation, CountMinReady: o.Machine.CountMinReady,
		NoComponentsTaint: !o.Machine.ComponentsTaint,
		Foresee:           sets.Foresee, Written: written,
		Metrics: f.metrics, Tracer: f.tracer,
	})
	machines, err3 := machine.New(machine.Config{
		Machines: api, Secrets: f.control.CoreV1(), Metadata: f.metadata, Namespace: o.Namespace, View: f.view, Targets: f.targets,
		Servers: f.outages(), DrainConfirm: o.checks().drainConfirm(),
		Drivers: f.drivers, ControlCluster: f.identity.ID, Events: f.recorder(v1alpha1.EventSourceMachine),
		Deletions: f.deletions, Sets: written, Limits: o.Limits(), IsUnlabeled: f.slots.unlabeledNode,
		BootstrapTokenGroups: strings.Join(o.Machine.BootstrapTokenGroups, ","), BootstrapTokenSigning: o.Machine.BootstrapTokenSigning,
		NoComponentsTaint: !o.Machine.ComponentsTaint, FirstConfig: f.firstConfig(o), Called: f.accounts.called,
		Gate:     f.slots.gate(policy.Machine),
		GoneGate: f.slots.goneGate(),
		Clock:    f.wall, Workers: o.ConcurrentSyncs, Metrics: f.metrics, Tracer: f.tracer,
	})
	classes, err4 := machineclass.New(machineclass.Config{
		Machines: api, Secrets: f.control.CoreV1(), Metadata: f.metadata, View: f.view, Namespace: o.Namespace,
		Gate: f.slots.sharedGate(), Clock: f.wall, Workers: o.ConcurrentSyncs, Metrics: f.metrics, Tracer: f.tracer,
	})
	counts, err6 := f.safetyCounts(o)
	if err := errors.Join(err1, err2, err3, err4, err5, err6); err != nil {
		return nil, err
	}
	f.accounts.try, f.problemOf = machines.TryAccount, machines.ClassProblem
	f.slots.showClasses(o, f, classes)
	f.onServerChange(machines, replacements)
	f.holds.OnChange(sets.HoldChanged)
	f.holds.OnChange(replacements.HoldChanged)
	f.breakers = replacements.Breakers()
	acts := f.session.fence.Acts
	byMachine := o.MetricsByMachine
	f.collectors = append(slices.Concat(deployments.Collectors(acts, byMachine), sets.Collectors(acts, byMachine), machines.Collectors(acts, byMachine)),
		heldDeletions(acts, replacements), newLoadGauges(acts, f.measure, assignment.CapacityOf(o.ConcurrentSyncs)))
	all := append([]controller{f.identity, f.namespaces, deployments, sets, machines, classes, replacements, f.accounts}, counts...)
	if o.Safety.OrphanVMsPeriod > 0 {
		sweep, err := newOrphans(o, f)
		if err != nil {
			return nil, err
		}
		f.slots.classes.OnSweepRequest(sweep.Requested)
		all = append(all, sweep)
	}
	if f.cluster != nil {
		nodes, err := node.New(node.Config{
			Metadata: f.metadata, View: f.view, Cluster: f.cluster, Namespace: o.Namespace,
			Gate: f.slots.nodeGate(), Clock: f.wall, Workers: 1, Metrics: f.metrics, Tracer: f.tracer,
		})
		if err != nil {
			return nil, err
		}
		all = append(all, nodes)
		configs, err := newMachineConfiguration(o, f, machines)
		if err != nil {
			return nil, err
		}
		all = append(all, configs...)
	}
	return all, f.slots.onUnlabeledNode(machines.NodeAppeared)
}

// classProblem returns what keeps machines of a class from getting VMs, as the machine controller finds it.
func (f *Replica) classProblem(ctx context.Context, class types.NamespacedName) (string, error) {
	return f.problemOf(ctx, class)
}

// Run runs the session, with the watches and the controllers around it, until the session has left, which begins when leave is
// closed, or cannot continue. The end of ctx ends all of them without a hand-over.
func (f *Replica) Run(ctx context.Context, leave <-chan struct{}) error {
	ctx = klog.NewContext(ctx, klog.FromContext(ctx).WithValues("replica", f.session.settings.Replica))
	working, stop := context.WithCancel(ctx)
	// The watchdog runs until run returns: work that does not end with the session has to end with the process.
	watching, unwatch := context.WithCancel(ctx)
	defer unwatch()
	go f.session.watch(watching)
	var running sync.WaitGroup
	defer running.Wait()
	defer stop()
	if err := f.broadcaster.StartRecordingToSinkWithContext(working); err != nil {
		return fmt.Errorf("start to record Events: %w", err)
	}
	defer f.broadcaster.Shutdown()
	running.Go(func() { f.slots.Run(working) })
	for _, server := range f.servers() {
		running.Go(func() { server.Run(working) })
	}
	for _, c := range f.running {
		running.Go(func() { c.Run(working) })
	}
	err := f.session.run(working, leave)
	if err != nil {
		f.session.pause(leave)
	}
	return err
}

// rolloutOf returns the rollout that a deployment is in, of which passes are traced.
func (f *Replica) rolloutOf(d *v1alpha1.MachineDeployment) telemetry.Stage {
	return machinedeployment.RolloutOf(f.view, d)
}

// Close releases the file lock of a replica that has ended.
func (f *Replica) Close() { _ = f.session.lock.Close() }

// ControlClient returns the client of the control cluster, which has the Fence below it.
func (f *Replica) ControlClient() kubernetes.Interface { return f.control }

// DebugPages returns the debug pages.
func (f *Replica) DebugPages() map[string]http.Handler {
	pages := map[string]http.Handler{"/debug/slots": http.HandlerFunc(f.session.replica.ServeSlots), "/debug/apiservers": f.session.servers}
	if f.session.faultPoint != nil {
		pages["/debug/faultpoints"] = f.session.faultPoint
	}
	return pages
}
