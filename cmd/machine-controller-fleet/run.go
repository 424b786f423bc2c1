package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"
	"k8s.io/apimachinery/pkg/types"
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
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/buildinfo"
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
	"github.com/machine-controller-fleet/machine-controller-fleet/shard/fence"
	"github.com/machine-controller-fleet/machine-controller-fleet/shard/load"
	shardsession "github.com/machine-controller-fleet/machine-controller-fleet/shard/session"
	"github.com/machine-controller-fleet/machine-controller-fleet/shard/slotlabel/policy"
)

// component is the name of the binary on its pages.
const component = "machine-controller-fleet"

// flushTimeout is how long the process waits at its end for the last spans to be sent.
const flushTimeout = 3 * time.Second

// run connects, wires and runs the replica until it has left, which begins when ctx ends.
func run(ctx context.Context, o options) error {
	started := time.Now()
	if err := o.logs.apply(nil); err != nil {
		return err
	}
	o.reportIneffective(klog.FromContext(ctx))
	registry := prometheus.NewRegistry()
	telemetry.LogSDK(klog.FromContext(ctx))
	build := buildinfo.Read()
	registerProcess(registry, build)
	provider, flush, err := telemetry.NewTracerProvider(ctx, o.process(build.Version))
	if err != nil {
		return err
	}
	defer func() {
		last, cancel := context.WithTimeout(context.WithoutCancel(ctx), flushTimeout)
		defer cancel()
		if err := flush(last); err != nil {
			klog.FromContext(ctx).Error(err, "Failed to send the last spans")
		}
	}()
	around := environment{
		drivers: func(fence *fence.Fence, metrics *telemetry.DriverMetrics, now func() time.Time) (map[string]driver.Driver, error) {
			return makeDrivers(ctx, o, build.Version, fence, metrics, now)
		},
		tracer: provider.Tracer(telemetry.Scope), registry: registry, die: die, clock: clock.RealClock{},
	}
	if around.control, around.target, err = clusters(o); err != nil {
		return err
	}
	f, running, err := wire(o, around)
	if err != nil {
		return err
	}
	defer f.session.close()
	metrics, debug := guards(o, newReviewer(f.control, clock.RealClock{}))
	scraped := serveMetrics(registry, registry, klog.FromContext(ctx))
	server, err := serve(ctx, o, f.pages(o, scraped, started, build).guarded(metrics, debug), f.health())
	if err != nil {
		return err
	}
	defer server.close()
	// The hand-over of slots needs a context that outlives the request to leave.
	return f.run(context.WithoutCancel(ctx), ctx.Done(), running)
}

// environment has what differs by where a replica runs. All fields but target are required.
type environment struct {
	// control and target are the connections to the clusters; target is nil when there is no target cluster.
	control, target *rest.Config
	// drivers returns the drivers by provider, without the Fence before them; drivers that have clients of their own put the
	// Fence below these, and below that the metrics of their requests. now is the time of the control cluster.
	drivers  func(fence *fence.Fence, metrics *telemetry.DriverMetrics, now func() time.Time) (map[string]driver.Driver, error)
	tracer   trace.Tracer
	registry *prometheus.Registry
	// die terminates the process immediately.
	die func(reason string)
	// clock is that of the process.
	clock clock.WithTickerAndDelayedExecution
}

// wire returns a replica that has not begun to run, and its controllers. Errors: invalid settings or configurations.
func wire(o options, around environment) (*fleet, []controller, error) {
	registry := around.registry
	f := &fleet{metrics: runner.NewMetrics(registry), tracer: around.tracer}
	if o.mcmWorkqueueMetrics {
		f.metrics.RepeatForMCM()
	}
	var err error
	if f.session, err = newSession(o, registry, around); err != nil {
		return nil, nil, err
	}
	if f.clients, err = connect(around, f.session.fence, o.checks()); err != nil {
		return nil, nil, err
	}
	f.session.time.Ahead = f.wall.Ahead
	f.registerClocks(registry)
	if f.drivers, err = f.fencedDrivers(around); err != nil {
		return nil, nil, err
	}
	f.targets = target.None{}
	if f.target != nil {
		f.cluster = target.New(f.target)
		f.cluster.Reach = f.known(f.targetServer, f.targetWall)
		f.cluster.Lead = func() time.Duration { return f.targetWall.AheadOf(f.wall) }
		f.targets = target.Single{Cluster: f.cluster}
	}
	if f.namespaces, err = namespaces.New(f.metadata, o.namespace); err != nil {
		return nil, nil, err
	}
	f.holds = holds.New(f.namespaces)
	f.budget = &deletionbudget.Budget{
		Namespaces: f.namespaces, Leases: f.control.CoordinationV1(), Default: o.safety.maxDeletions, Clock: f.wall,
	}
	f.view = objectcache.NewView()
	f.accounts = newCloudAccounts(f, o.fleet.slots)
	f.identity = &controlCluster{namespaces: f.control.CoreV1().Namespaces(), clock: around.clock}
	f.broadcaster = events.NewBroadcaster(telemetry.ByReplica(&events.EventSinkImpl{Interface: f.control.EventsV1()}, o.replicaName))
	deletionLog, err := deletionlog.Open(o.safety.deletionLog)
	if err != nil {
		return nil, nil, err
	}
	f.deletions = deletionlog.New(f.wall, deletionLog, registry)
	running, err := f.controllers(o)
	if err != nil {
		return nil, nil, err
	}
	registry.MustRegister(f.collectors...)
	f.slots.count(registry)
	countBreakers(registry, f.breakers)
	f.session.servers = f.servers()
	f.session.servers.Register(registry)
	reporter := &shardsession.Reporter{
		Settings: f.session.settings, Metadata: f.metadata, Namespace: o.namespace, Events: f.recorder(v1alpha1.EventSourceMachineDeployment),
	}
	if err := f.session.protocol(f, reporter); err != nil {
		return nil, nil, err
	}
	return f, running, nil
}

// fleet is one replica, wired.
type fleet struct {
	clients

	session     *session
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

func (f *fleet) recorder(source string) events.EventRecorder {
	return telemetry.Damped(f.broadcaster.NewRecorder(scheme.Scheme, source), clock.RealClock{})
}

type controller interface{ Run(ctx context.Context) }

// controllers returns all controllers; their order does not matter.
func (f *fleet) controllers(o options) ([]controller, error) {
	spread, err := o.fleet.spread()
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
		Clock: f.wall, Workers: o.concurrentSyncs, Metrics: f.metrics, Tracer: f.tracer, CountMinReady: o.machine.countMinReady,
		Written: written, Held: f.holds.Held, Rollout: f.rolloutOf, ClassProblem: f.classProblem,
	})
	deployments, err1 := machinedeployment.New(machinedeployment.Config{
		Machines: api, Metadata: f.metadata, View: f.view, Targets: f.targets, Events: f.recorder(v1alpha1.EventSourceMachineDeployment),
		Gate:  f.slots.gate(policy.Deployment),
		Clock: f.wall, Workers: o.concurrentSyncs, KeepFromAutoscaler: o.machine.scaleDownAnnotation, CountMinReady: o.machine.countMinReady,
		NoComponentsTaint: !o.machine.componentsTaint,
		Foresee:           sets.Foresee, Written: written,
		Metrics: f.metrics, Tracer: f.tracer,
	})
	machines, err3 := machine.New(machine.Config{
		Machines: api, Secrets: f.control.CoreV1(), Metadata: f.metadata, Namespace: o.namespace, View: f.view, Targets: f.targets,
		Servers: f.outages(), DrainConfirm: o.checks().drainConfirm(),
		Drivers: f.drivers, ControlCluster: f.identity.ID, Events: f.recorder(v1alpha1.EventSourceMachine),
		Deletions: f.deletions, Sets: written, Limits: o.limits(), IsUnlabeled: f.slots.unlabeledNode,
		BootstrapTokenGroups: strings.Join(o.machine.bootstrapTokenGroups, ","), BootstrapTokenSigning: o.machine.bootstrapTokenSigning,
		NoComponentsTaint: !o.machine.componentsTaint, FirstConfig: f.firstConfig(o), Called: f.accounts.called,
		Gate:     f.slots.gate(policy.Machine),
		GoneGate: f.slots.goneGate(),
		Clock:    f.wall, Workers: o.concurrentSyncs, Metrics: f.metrics, Tracer: f.tracer,
	})
	classes, err4 := machineclass.New(machineclass.Config{
		Machines: api, Secrets: f.control.CoreV1(), Metadata: f.metadata, View: f.view, Namespace: o.namespace,
		Gate: f.slots.sharedGate(), Clock: f.wall, Workers: o.concurrentSyncs, Metrics: f.metrics, Tracer: f.tracer,
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
	byMachine := o.metricsByMachine
	f.collectors = append(slices.Concat(deployments.Collectors(acts, byMachine), sets.Collectors(acts, byMachine), machines.Collectors(acts, byMachine)),
		heldDeletions(acts, replacements), newLoadGauges(acts, f.measure, load.CapacityOf(o.concurrentSyncs)))
	all := append([]controller{f.identity, f.namespaces, deployments, sets, machines, classes, replacements, f.accounts}, counts...)
	if o.safety.orphanVMsPeriod > 0 {
		sweep, err := newOrphans(o, f)
		if err != nil {
			return nil, err
		}
		f.slots.classes.OnSweepRequest(sweep.Requested)
		all = append(all, sweep)
	}
	if f.cluster != nil {
		nodes, err := node.New(node.Config{
			Metadata: f.metadata, View: f.view, Cluster: f.cluster, Namespace: o.namespace,
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
func (f *fleet) classProblem(ctx context.Context, class types.NamespacedName) (string, error) {
	return f.problemOf(ctx, class)
}

// run runs the session, with the watches and the controllers around it, until the session has left, which begins when leave is
// closed, or cannot continue. The end of ctx ends all of them without a hand-over.
func (f *fleet) run(ctx context.Context, leave <-chan struct{}, controllers []controller) error {
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
	for _, c := range controllers {
		running.Go(func() { c.Run(working) })
	}
	err := f.session.run(working, leave)
	if err != nil {
		f.session.pause(leave)
	}
	return err
}
