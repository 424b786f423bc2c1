package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	machineclientset "github.com/machine-controller-fleet/machine-controller-fleet/client/clientset/versioned"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/orphans"
	"github.com/machine-controller-fleet/machine-controller-fleet/driver"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/harness"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/preload"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/simulated"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/simulated/cloudapi"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/deletion"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/runner"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/target"
)

const (
	// sweptClasses is how many classes with the same credentials the namespace has: one for each zone
	// and pool of a large cluster.
	sweptClasses = 10
	// createdAtOnce is how many VMs are created at the same time.
	createdAtOnce = 32
)

// spent contains the costs of a sweep.
type spent struct {
	api, cloud counter
	heap       float64 // bytes, beyond those at the beginning
}

// counter counts the requests of a client and the bytes of the answers.
type counter struct {
	next         http.RoundTripper
	calls, bytes atomic.Int64
}

func (c *counter) RoundTrip(r *http.Request) (*http.Response, error) {
	c.calls.Add(1)
	answer, err := c.next.RoundTrip(r)
	if err == nil {
		answer.Body = &countedBody{answer.Body, &c.bytes}
	}
	return answer, err
}

type countedBody struct {
	io.ReadCloser

	bytes *atomic.Int64
}

func (b *countedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.bytes.Add(int64(n))
	return n, err
}

// measureSweep measures one sweep of orphans over the machines that measureMemory has left, or over
// as many, with a VM for each, and the list of VMs as Machine Controller Manager does it: once for
// each class. It runs in this process, so that its memory is that of the sweep alone.
func measureSweep(ctx context.Context, lab *harness.Lab, count int, s sample) error {
	system, err := lab.Control.CoreV1().Namespaces().Get(ctx, metav1.NamespaceSystem, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("read the ID of the control cluster: %w", err)
	}
	if _, err := lab.Control.CoreV1().Namespaces().Get(ctx, many, metav1.GetOptions{}); apierrors.IsNotFound(err) {
		load := preload.Load{Namespace: many, Deployments: count / perDeployment, Machines: perDeployment}
		if _, err := standStill(ctx, lab, func() error { return addMachines(ctx, lab, load) }); err != nil {
			return err
		}
	}
	if err := addVMs(ctx, lab, string(system.UID)); err != nil {
		return err
	}
	for i := range sweptClasses - 1 {
		class := harness.Class(many, "")
		class.Name = fmt.Sprintf("%s-%d", class.Name, i)
		if _, err := lab.Machines.MachineV1alpha1().MachineClasses(many).Create(ctx, class, metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("create class %s: %w", class.Name, err)
		}
	}
	var own, perClass spent
	if err := measured(&own, func() error { return sweepOnce(ctx, lab, string(system.UID), &own) }); err != nil {
		return err
	}
	if err := measured(&perClass, func() error { return listPerClass(ctx, lab, &perClass) }); err != nil {
		return err
	}
	s["sweep_cloud_calls_of_10000"] = pair{float64(own.cloud.calls.Load()), float64(perClass.cloud.calls.Load())}
	s["sweep_cloud_mb_of_10000"] = pair{float64(own.cloud.bytes.Load()) / 1e6, float64(perClass.cloud.bytes.Load()) / 1e6}
	s["sweep_api_calls_of_10000"] = pair{value: float64(own.api.calls.Load())}
	s["sweep_api_mb_of_10000"] = pair{value: float64(own.api.bytes.Load()) / 1e6}
	s["sweep_heap_mb_of_10000"] = pair{own.heap / 1e6, perClass.heap / 1e6}
	return nil
}

// addVMs creates a VM for each machine.
func addVMs(ctx context.Context, lab *harness.Lab, controlCluster string) error {
	list, err := lab.Machines.MachineV1alpha1().Machines(many).List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("list machines: %w", err)
	}
	if err := lab.Cloud.Set(ctx, `{"latency":{"CreateInstance":{"mean":"0s","spread":"0s"}}}`); err != nil {
		return err
	}
	start := time.Now()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	work := make(chan v1alpha1.Machine)
	var workers sync.WaitGroup
	for range createdAtOnce {
		workers.Go(func() {
			for m := range work {
				_, err := lab.Cloud.Create(ctx, cloudapi.CreateInstanceRequest{Name: m.Name, Tags: map[string]string{
					simulated.TagCluster: many, simulated.TagMachine: m.Name, simulated.TagMachineUID: string(m.UID),
					simulated.TagControlCluster: controlCluster,
				}})
				if err != nil {
					cancel(err)
				}
			}
		})
	}
	for _, m := range list.Items {
		work <- m
	}
	close(work)
	workers.Wait()
	fmt.Printf("%d VMs were created in %.0f s\n", len(list.Items), time.Since(start).Seconds())
	return errors.Join(context.Cause(ctx), lab.Cloud.Set(ctx, settings))
}

// measured runs a sweep, and samples the heap meanwhile.
func measured(s *spent, sweep func() error) error {
	runtime.GC()
	var before, now runtime.MemStats
	runtime.ReadMemStats(&before)
	done := make(chan error, 1)
	go func() { done <- sweep() }()
	ticker := time.NewTicker(5 * time.Millisecond)
	defer ticker.Stop()
	for {
		select {
		case err := <-done:
			return err
		case <-ticker.C:
			runtime.ReadMemStats(&now)
			s.heap = max(s.heap, float64(now.HeapAlloc)-float64(before.HeapAlloc))
		}
	}
}

// clouds returns the driver with a counted transport.
func clouds(lab *harness.Lab, s *spent) (*driver.Registry, error) {
	d, err := simulated.New(simulated.Config{
		Endpoints: []string{lab.Endpoint("cloudsim")},
		Wrap: func(next http.RoundTripper) http.RoundTripper {
			s.cloud.next = next
			return &s.cloud
		},
	})
	if err != nil {
		return nil, err
	}
	return driver.NewRegistry(map[string]driver.Driver{simulated.Provider: d}), nil
}

// sweepOnce sweeps the namespace once.
func sweepOnce(ctx context.Context, lab *harness.Lab, controlCluster string, s *spent) error {
	drivers, err := clouds(lab, s)
	if err != nil {
		return err
	}
	config := rest.CopyConfig(lab.Config)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		s.api.next = next
		return &s.api
	})
	config.QPS = -1
	machines, err1 := machineclientset.NewForConfig(config)
	control, err2 := kubernetes.NewForConfig(config)
	meta, err3 := metadata.NewForConfig(config)
	if err := errors.Join(err1, err2, err3); err != nil {
		return err
	}
	o, err := orphans.New(orphans.Config{
		Machines: machines.MachineV1alpha1(), Metadata: meta, Secrets: control.CoreV1(), Leases: control.CoordinationV1(),
		Sweeper: drivers.Sweeper, Targets: target.None{}, Events: &events.FakeRecorder{}, Namespace: many,
		Ledger:         types.NamespacedName{Namespace: harness.FleetNamespace, Name: harness.FleetName + "-bench"},
		ControlCluster: func() string { return controlCluster },
		Served:         func(context.Context, string) (bool, error) { return true, nil },
		Held:           func(string) (string, bool) { return "", false },
		Deletions:      deletion.NewRecorder(clock.RealClock{}, nil, nil),
		Gate:           runner.Open[string]{}, Token: func() string { return "bench" },
		Period: time.Second, Quarantine: time.Hour, Limit: 1, DryRun: true, Clock: clock.RealClock{},
	})
	if err != nil {
		return err
	}
	sweeping, end := context.WithCancel(ctx)
	defer end()
	var running sync.WaitGroup
	defer running.Wait()
	defer end()
	running.Go(func() { o.Run(sweeping) })
	o.Led()
	return harness.EventuallyEvery(ctx, 20*time.Millisecond, "the namespace is swept", func(context.Context) error {
		return isSwept(o.Collectors())
	})
}

// listPerClass lists the VMs of each class, as Machine Controller Manager does. It has all machines
// in memory, which does not count here.
func listPerClass(ctx context.Context, lab *harness.Lab, s *spent) error {
	drivers, err := clouds(lab, s)
	if err != nil {
		return err
	}
	d, err := drivers.Get(simulated.Provider)
	if err != nil {
		return err
	}
	classes, err := lab.Machines.MachineV1alpha1().MachineClasses(many).List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("list classes: %w", err)
	}
	for i := range classes.Items {
		if _, err := d.ListMachines(ctx, driver.ListMachinesRequest{Class: &classes.Items[i], Secret: map[string][]byte{}}); err != nil {
			return err
		}
	}
	return nil
}

// isSwept returns an error until a sweep is complete.
func isSwept(metrics []prometheus.Collector) error {
	registry := prometheus.NewRegistry()
	for _, c := range metrics {
		if err := registry.Register(c); err != nil {
			return err
		}
	}
	families, err := registry.Gather()
	if err != nil {
		return err
	}
	for _, family := range families {
		if family.GetName() != "mcf_orphan_sweeps_total" {
			continue
		}
		for _, m := range family.GetMetric() {
			for _, label := range m.GetLabel() {
				if label.GetValue() == "complete" && m.GetCounter().GetValue() > 0 {
					return nil
				}
			}
		}
	}
	return errors.New("it is not")
}
