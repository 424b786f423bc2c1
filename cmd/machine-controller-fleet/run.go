package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"go.opentelemetry.io/otel/trace"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/client/clientset/versioned/scheme"
	machineinformers "github.com/machine-controller-fleet/machine-controller-fleet/client/informers/externalversions"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machine"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machineclass"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machinedeployment"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machineset"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/runner"
	"github.com/machine-controller-fleet/machine-controller-fleet/driver"
	"github.com/machine-controller-fleet/machine-controller-fleet/driver/simulated"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/trim"
	"github.com/machine-controller-fleet/machine-controller-fleet/target"
	"github.com/machine-controller-fleet/machine-controller-fleet/telemetry"
)

// tracerName names the fleet's spans.
const tracerName = "github.com/machine-controller-fleet/machine-controller-fleet"

// flushTimeout bounds how long the end waits for the last spans to be sent.
const flushTimeout = 3 * time.Second

// run connects, wires and runs the replica until ctx ends.
func run(ctx context.Context, o options) error {
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	provider, flush, err := telemetry.NewTracerProvider(ctx, o.replicaName)
	if err != nil {
		return err
	}
	defer func() {
		last, cancel := context.WithTimeout(context.WithoutCancel(ctx), flushTimeout)
		defer cancel()
		if err := flush(last); err != nil {
			klog.FromContext(ctx).Error(err, "The last spans were not sent")
		}
	}()
	server, err := serve(ctx, o, registry)
	if err != nil {
		return err
	}
	defer server.close()
	c, err := connect(o)
	if err != nil {
		return err
	}
	drivers, err := makeDrivers(o, provider.Tracer(tracerName))
	if err != nil {
		return err
	}
	f := &fleet{
		clients: c, drivers: drivers, metrics: runner.NewMetrics(registry), tracer: provider.Tracer(tracerName),
		cluster: target.New(c.target),
		informers: machineinformers.NewSharedInformerFactoryWithOptions(c.machines, 0,
			machineinformers.WithNamespace(o.namespace), machineinformers.WithTransform(trim.ManagedFields)),
		broadcaster: events.NewBroadcaster(&events.EventSinkImpl{Interface: c.control.EventsV1()}),
	}
	running, err := f.controllers(o)
	if err != nil {
		return err
	}
	return f.run(ctx, running, server)
}

// makeDrivers makes the drivers that the flags ask for.
func makeDrivers(o options, tracer trace.Tracer) (*driver.Registry, error) {
	if o.simulatedCloudEndpoint == "" {
		return driver.NewRegistry(nil), nil
	}
	d, err := simulated.New(simulated.Config{Endpoint: o.simulatedCloudEndpoint, UserAgent: "machine-controller-fleet/" + o.replicaName})
	if err != nil {
		return nil, fmt.Errorf("--simulated-cloud-endpoint: %w", err)
	}
	return driver.NewRegistry(map[string]driver.Driver{
		simulated.Provider: &telemetry.TracedDriver{Driver: d, Provider: simulated.Provider, Tracer: tracer},
	}), nil
}

// fleet is one replica, wired.
type fleet struct {
	clients
	drivers     *driver.Registry
	metrics     *runner.Metrics
	tracer      trace.Tracer
	cluster     *target.Cluster
	informers   machineinformers.SharedInformerFactory
	broadcaster events.EventBroadcaster
}

type controller interface{ Run(ctx context.Context) }

// controllers makes all controllers; their order does not matter.
func (f *fleet) controllers(o options) ([]controller, error) {
	api, informers := f.machines.MachineV1alpha1(), f.informers.Machine().V1alpha1()
	wall := clock.RealClock{}
	recorder := func(source string) events.EventRecorder { return f.broadcaster.NewRecorder(scheme.Scheme, source) }
	deployments, err1 := machinedeployment.New(machinedeployment.Config{
		Machines: api, Metadata: f.metadata, Informers: informers, Events: recorder(v1alpha1.EventSourceMachineDeployment),
		Clock: wall, Workers: o.concurrentSyncs, Metrics: f.metrics, Tracer: f.tracer,
	})
	sets, err2 := machineset.New(machineset.Config{
		Machines: api, Metadata: f.metadata, Informers: informers, Events: recorder(v1alpha1.EventSourceMachineSet),
		Clock: wall, Workers: o.concurrentSyncs, Metrics: f.metrics, Tracer: f.tracer,
	})
	machines, err3 := machine.New(machine.Config{
		Machines: api, Secrets: f.control.CoreV1(), Informers: informers, Targets: target.Single{Cluster: f.cluster},
		Drivers: f.drivers, Events: recorder(v1alpha1.EventSourceMachine), Limits: o.limits(),
		BootstrapTokenGroups: o.bootstrapTokenGroups,
		Clock:                wall, Workers: o.concurrentSyncs, Metrics: f.metrics, Tracer: f.tracer,
	})
	classes, err4 := machineclass.New(machineclass.Config{
		Machines: api, Secrets: f.control.CoreV1(), Metadata: f.metadata, Informers: informers, Namespace: o.namespace,
		Clock: wall, Workers: o.concurrentSyncs, Metrics: f.metrics, Tracer: f.tracer,
	})
	return []controller{deployments, sets, machines, classes}, errors.Join(err1, err2, err3, err4)
}

// run starts the watches, waits until they are complete, and runs the controllers until ctx ends.
func (f *fleet) run(ctx context.Context, controllers []controller, server *server) error {
	watching, stop := context.WithCancel(ctx)
	defer f.informers.Shutdown()
	defer f.cluster.Stop()
	defer stop()
	if err := f.broadcaster.StartRecordingToSinkWithContext(watching); err != nil {
		return fmt.Errorf("start to record Events: %w", err)
	}
	defer f.broadcaster.Shutdown()
	f.informers.Start(watching.Done())
	if err := f.cluster.Start(watching); err != nil {
		return ended(ctx, err)
	}
	for kind, synced := range f.informers.WaitForCacheSync(watching.Done()) {
		if !synced {
			return ended(ctx, fmt.Errorf("the objects of kind %s could not be listed", kind))
		}
	}
	klog.FromContext(ctx).Info("The caches are complete, the controllers start")
	server.ready()
	var running sync.WaitGroup
	for _, c := range controllers {
		running.Go(func() { c.Run(ctx) })
	}
	running.Wait()
	return nil
}

// ended turns an error into nil that came only because the process was asked to end.
func ended(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil //nolint:nilerr // the end was asked for
	}
	return err
}
