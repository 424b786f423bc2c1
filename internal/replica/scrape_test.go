package replica

import (
	"compress/gzip"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace/noop"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/driver"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/buildinfo"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/ownerref"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/serving"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/telemetry"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/fakecloud"
	"github.com/machine-controller-fleet/machine-controller-fleet/membership"
)

// BenchmarkScrape measures a scrape of a replica that has 10,000 machines in 1,000
// MachineDeployments, with the series for each machine that are served by default, and with others.
// B/scrape are the bytes of the text, gzip-B/scrape those that a reader gets, and cpu-ms/scrape is
// the time of all threads of the process, of the garbage collector's, too.
func BenchmarkScrape(b *testing.B) {
	o := DefaultOptions()
	for _, of := range []struct {
		name      string
		byMachine []string
	}{
		{"default", o.MetricsByMachine},
		{"phase", append([]string{telemetry.MachinePhase}, o.MetricsByMachine...)},
		{"all", telemetry.SeriesByMachine()},
	} {
		b.Run(of.name, func(b *testing.B) {
			o.MetricsByMachine = of.byMachine
			handler := wiredWithMachines(b, o, 1000, 10)
			size, packed, cpu := 0, 0, time.Duration(0)
			for b.Loop() {
				r := httptest.NewRequestWithContext(b.Context(), http.MethodGet, "/metrics", http.NoBody)
				r.Header.Set("Accept", "application/openmetrics-text; version=1.0.0")
				r.Header.Set("Accept-Encoding", "gzip")
				w, before := httptest.NewRecorder(), cpuTime(b)
				handler.ServeHTTP(w, r)
				cpu += cpuTime(b) - before
				packed = w.Body.Len()
				b.StopTimer()
				size = unpacked(b, w.Body)
				b.StartTimer()
			}
			b.ReportMetric(float64(cpu.Milliseconds())/float64(b.N), "cpu-ms/scrape")
			b.ReportMetric(float64(size), "B/scrape")
			b.ReportMetric(float64(packed), "gzip-B/scrape")
		})
	}
}

// cpuTime returns how much CPU time the process has used.
func cpuTime(b *testing.B) time.Duration {
	b.Helper()
	var usage unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &usage); err != nil {
		b.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// unpacked returns the size of what was compressed.
func unpacked(b *testing.B, body io.Reader) int {
	b.Helper()
	reader, err := gzip.NewReader(body)
	if err != nil {
		b.Fatal(err)
	}
	size, err := io.Copy(io.Discard, reader)
	if err != nil {
		b.Fatal(err)
	}
	return int(size)
}

// wiredWithMachines returns the handler of metrics of a replica that sees MachineDeployments, each
// with a set and machines that run.
func wiredWithMachines(b *testing.B, o Options, deployments, machines int) http.Handler {
	b.Helper()
	o.Name = "fleet-0"
	registry := prometheus.NewRegistry()
	f := wired(b, o, registry)
	kind := v1alpha1.SchemeGroupVersion.WithKind
	meta := func(name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: "shoot--project--cluster", Name: name, UID: types.UID(name), CreationTimestamp: metav1.Now()}
	}
	f.slots.view.Classes.Apply(&v1alpha1.MachineClass{ObjectMeta: meta("large"), Provider: fakecloud.Provider}, true)
	for i := range deployments {
		d := &v1alpha1.MachineDeployment{ObjectMeta: meta(fmt.Sprintf("shoot--project--cluster-worker-%d", i))}
		set := &v1alpha1.MachineSet{ObjectMeta: meta(d.Name + "-5d7c8")}
		ownerref.Adopt(set, d, kind("MachineDeployment"))
		f.slots.view.Deployments.Apply(d, true)
		f.slots.view.Sets.Apply(set, true)
		for j := range machines {
			f.slots.view.Machines.Apply(running(meta(fmt.Sprintf("%s-%05x", set.Name, (i*machines+j)*7919%1048573)), set, kind("MachineSet")), true)
		}
	}
	return serving.ServeMetrics(registry, registry, klog.Background())
}

// running returns a machine that runs, with the conditions that a kubelet sets.
func running(meta metav1.ObjectMeta, set *v1alpha1.MachineSet, kind schema.GroupVersionKind) *v1alpha1.Machine {
	meta.Labels = map[string]string{v1alpha1.LabelNode: meta.Name}
	m := &v1alpha1.Machine{ObjectMeta: meta, Spec: v1alpha1.MachineSpec{
		Class:      v1alpha1.ClassSpec{Kind: "MachineClass", Name: "large"},
		ProviderID: fmt.Sprintf("aws:///eu-west-1/i-%x", sha256.Sum256([]byte(meta.Name)))[:36],
	}}
	m.Status.CurrentStatus = v1alpha1.CurrentStatus{Phase: v1alpha1.MachineRunning, LastUpdateTime: metav1.NewTime(time.Now())}
	for _, condition := range []corev1.NodeConditionType{
		corev1.NodeReady, corev1.NodeMemoryPressure, corev1.NodeDiskPressure, corev1.NodePIDPressure, corev1.NodeNetworkUnavailable,
	} {
		m.Status.Conditions = append(m.Status.Conditions, corev1.NodeCondition{Type: condition, Status: corev1.ConditionFalse})
	}
	ownerref.Adopt(m, set, kind)
	return m
}

// wired returns a replica that does not run and may act, with its metrics and those of the process.
func wired(b *testing.B, o Options, registry *prometheus.Registry) *Replica {
	b.Helper()
	f, err := New(o, Environment{
		Control: &rest.Config{Host: "http://control"}, Target: &rest.Config{Host: "http://target"}, Registry: registry,
		Tracer: noop.NewTracerProvider().Tracer(""),
		Drivers: func(func() float64, func() time.Time) (map[string]driver.Driver, error) {
			return map[string]driver.Driver{fakecloud.Provider: (&fakecloud.Cloud{}).Driver()}, nil
		},
		Die: func(string) {}, Clock: clock.RealClock{},
	})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { // what waits in queues ends when the controllers have run
		ended, end := context.WithCancel(context.Background())
		end()
		f.slots.Run(ended)
		for _, c := range f.running {
			c.Run(ended)
		}
		f.events.Shutdown()
		f.Close()
	})
	f.fence.Follow(acting{f.time.Moment().Add(time.Hour)}, nil)
	serving.RegisterProcess(registry, buildinfo.Info{})
	return f
}

// acting is the entitlement of a session that may act until a moment, and holds no slots.
type acting struct{ until membership.Moment }

func (acting) Suspended() bool                     { return false }
func (a acting) Fence() membership.Moment          { return a.until }
func (acting) Entitled(int) (epoch int64, ok bool) { return 0, false }
