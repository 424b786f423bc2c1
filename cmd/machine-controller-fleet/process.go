package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/machine-controller-fleet/machine-controller-fleet/driver"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/buildinfo"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/page"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/replica"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/serving"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/telemetry"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/zpages"
)

// component is the name of the binary on its pages.
const component = "machine-controller-fleet"

// flushTimeout is how long the process waits at its end for the last spans to be sent.
const flushTimeout = 3 * time.Second

// run connects, wires and runs the replica until it has left, which begins when ctx ends.
func run(ctx context.Context, o options) error {
	started := time.Now()
	if err := o.logs.Apply(nil); err != nil {
		return err
	}
	o.reportIneffective(klog.FromContext(ctx))
	registry := prometheus.NewRegistry()
	telemetry.LogSDK(klog.FromContext(ctx))
	build := buildinfo.Read()
	serving.RegisterProcess(registry, build)
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
	around := replica.Environment{
		Drivers: func(share func() float64, now func() time.Time) (map[string]driver.Driver, error) {
			return newDrivers(ctx, o, build.Version, share, now)
		},
		Tracer: provider.Tracer(telemetry.Scope), Registry: registry, Die: die, Clock: clock.RealClock{},
	}
	clusters, err := o.kubeconfigs.Open()
	if err != nil {
		return err
	}
	around.Control, around.Target, around.Leases = clusters.Control, clusters.Target, clusters.Leases
	go clusters.Reload(ctx, clock.RealClock{})
	go paceCollections(ctx, clock.RealClock{})
	f, err := replica.New(o.Options, around)
	if err != nil {
		return err
	}
	defer f.Close()
	o.server.Profiling = o.server.Profiling || o.Fleet.DebugHooks
	reviews := serving.NewReviewer(f.ControlClient(), clock.RealClock{})
	metrics, debug := serving.Guards(o.server, reviews)
	all := serving.Pages{
		Metrics: serving.ServeMetrics(registry, registry, klog.FromContext(ctx)), Debug: serving.ServeDebug(o.server, f.DebugPages()),
		Statusz: zpages.Statusz(statusOf(f, started, build)), Flagz: zpages.Flagz(component, o.values),
	}
	if all.Page, err = newPage(ctx, f, o, reviews); err != nil {
		return err
	}
	server, err := serving.Serve(ctx, o.server, all.Guarded(metrics, debug), serving.Health{Live: f.Live, Ready: f.Ready})
	if err != nil {
		return err
	}
	defer server.Close()
	if err := serveAutoscalers(ctx, f, o.autoscalers); err != nil {
		return err
	}
	// The hand-over of slots needs a context that outlives the request to leave.
	return f.Run(context.WithoutCancel(ctx), ctx.Done())
}

// newPage returns the page of the fleet, which computes what it shows until ctx ends; nil if it is
// not served.
func newPage(ctx context.Context, f *replica.Replica, o options, reviews *serving.Reviewer) (http.Handler, error) {
	source := f.PageSource()
	if source == nil {
		return nil, nil //nolint:nilnil // it is switched off
	}
	cfg := page.Config{Source: source, Clock: clock.RealClock{}}
	if o.server.MetricsAuthorization {
		cfg.Access = reviews
	}
	served, err := page.New(cfg)
	if err != nil {
		return nil, err
	}
	go served.Run(ctx)
	return served, nil
}

// serveAutoscalers listens for cluster-autoscalers if they are served, and serves them until ctx
// ends. Errors: the address is taken, or a file is invalid.
func serveAutoscalers(ctx context.Context, f *replica.Replica, o serving.MutualOptions) error {
	if f.Autoscalers() == nil {
		return nil
	}
	listener, config, err := serving.ListenMutual(ctx, o)
	if err != nil {
		return fmt.Errorf("--autoscaler-…: %w", err)
	}
	go func() {
		if err := f.Autoscalers().Serve(ctx, listener, config); err != nil {
			klog.FromContext(ctx).Error(err, "Stopped serving cluster-autoscalers")
		}
	}()
	return nil
}

// statusOf returns what /statusz shows.
func statusOf(f *replica.Replica, started time.Time, build buildinfo.Info) zpages.Status {
	paths := serving.Paths()
	if f.PageSource() != nil {
		paths = append(paths, page.Path)
	}
	return zpages.Status{
		Component: component,
		Started:   started,
		Now:       time.Now,
		GoVersion: build.Go,
		Version:   build.Version,
		Paths:     paths,
		More:      f.StatusRows,
	}
}

// die terminates the process immediately.
func die(reason string) {
	klog.Background().Error(nil, "Terminating process immediately", "message", reason)
	klog.Flush()
	os.Exit(1)
}
