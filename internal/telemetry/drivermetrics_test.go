package telemetry

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	dto "github.com/prometheus/client_model/go"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	clientmetrics "k8s.io/client-go/tools/metrics"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/machine-controller-fleet/machine-controller-fleet/driver"
)

// slow is a driver whose calls take some time and end with an error.
type slow struct {
	driver.Driver
	clock *clocktesting.FakePassiveClock
	takes time.Duration
	err   error
}

func (d *slow) DeleteMachine(context.Context, driver.DeleteMachineRequest) (driver.DeleteMachineResponse, error) {
	d.clock.SetTime(d.clock.Now().Add(d.takes))
	return driver.DeleteMachineResponse{}, d.err
}

// refusal is the error of a call that was not sent.
type refusal struct{ error }

func (refusal) NotOurs() bool { return false }

func TestDriverMetricsCallsCountedByCode(t *testing.T) {
	registry := prometheus.NewRegistry()
	d := &slow{clock: clocktesting.NewFakePassiveClock(time.Unix(0, 0)), takes: 20 * time.Second}
	traced := TraceDriver(d, "p", sdktrace.NewTracerProvider().Tracer("t"), NewDriverMetrics(registry, d.clock))
	for _, err := range []error{
		nil, driver.Errorf(driver.OpDelete, driver.ResourceExhausted, "full"), errors.New("bare"),
		driver.Errorf(driver.OpDelete, driver.Unavailable, "down"), driver.Throttledf(driver.OpDelete, time.Second, "later"),
		&driver.Error{Code: driver.Canceled, Op: driver.OpDelete, Err: refusal{errors.New("lost")}},
	} {
		d.err = err
		_, _ = traced.DeleteMachine(t.Context(), driver.DeleteMachineRequest{}) // the metrics are looked at
	}
	const want = `
# HELP mcf_driver_calls_total Calls of drivers by code, which is OK for those that succeeded, and Throttled for those that the cloud has refused because there were too many.
# TYPE mcf_driver_calls_total counter
mcf_driver_calls_total{code="OK",operation="delete_machine",provider="p"} 1
mcf_driver_calls_total{code="ResourceExhausted",operation="delete_machine",provider="p"} 1
mcf_driver_calls_total{code="Throttled",operation="delete_machine",provider="p"} 1
mcf_driver_calls_total{code="Unavailable",operation="delete_machine",provider="p"} 1
mcf_driver_calls_total{code="Unknown",operation="delete_machine",provider="p"} 1
# HELP mcm_cloud_api_driver_requests_failed_total Calls of drivers that returned an error, by the number of its code.
# TYPE mcm_cloud_api_driver_requests_failed_total counter
mcm_cloud_api_driver_requests_failed_total{error_code="14",operation="delete_machine",provider="p"} 2
mcm_cloud_api_driver_requests_failed_total{error_code="2",operation="delete_machine",provider="p"} 1
mcm_cloud_api_driver_requests_failed_total{error_code="8",operation="delete_machine",provider="p"} 1
`
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want), "mcf_driver_calls_total",
		"mcm_cloud_api_driver_requests_failed_total"); err != nil {
		t.Error(err)
	}
	took := histogram(t, registry, "mcm_cloud_api_driver_request_duration_seconds")
	if took.GetSampleCount() != 1 || took.GetSampleSum() != 20 {
		t.Errorf("%d successful calls took %g s, want 1 of 20 s", took.GetSampleCount(), took.GetSampleSum())
	}
	if got := exemplars(took); len(got) != 1 || len(got[0]) != 32 {
		t.Errorf("exemplars %q, want the ID of one trace", got)
	}
}

// histogram returns the only series of a histogram.
func histogram(t *testing.T, registry *prometheus.Registry, name string) *dto.Histogram {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() == name && len(family.GetMetric()) == 1 {
			return family.GetMetric()[0].GetHistogram()
		}
	}
	t.Fatalf("expected one series of %s, got %v", name, families)
	return nil
}

// exemplars returns the IDs of traces of a histogram's exemplars.
func exemplars(h *dto.Histogram) (ids []string) {
	for _, bucket := range h.GetBucket() {
		for _, label := range bucket.GetExemplar().GetLabel() {
			ids = append(ids, label.GetName()+"="+label.GetValue())
		}
	}
	for i, id := range ids {
		ids[i] = strings.TrimPrefix(id, exemplarLabel+"=")
	}
	return ids
}

func TestUnsampledTraceHasNoExemplar(t *testing.T) {
	registry := prometheus.NewRegistry()
	seconds := prometheus.NewHistogram(prometheus.HistogramOpts{Name: "h", Help: "h", Buckets: []float64{1}})
	registry.MustRegister(seconds)
	never := sdktrace.NewTracerProvider(sdktrace.WithSampler(sdktrace.NeverSample()))
	ctx, span := never.Tracer("t").Start(t.Context(), "s")
	defer span.End()
	Observe(ctx, seconds, time.Millisecond)
	Observe(t.Context(), seconds, time.Millisecond)
	if got := histogram(t, registry, "h"); got.GetSampleCount() != 2 || len(exemplars(got)) > 0 {
		t.Errorf("%d values with the exemplars %v, want 2 without", got.GetSampleCount(), exemplars(got))
	}
}

// roundTrip is a transport.
type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func TestRequestsOfDriversAreCountedByService(t *testing.T) {
	registry, clock := prometheus.NewRegistry(), clocktesting.NewFakePassiveClock(time.Unix(0, 0))
	metrics := NewRequestMetrics(registry, clock)
	transport := metrics.Transport("p", func(r *http.Request) string { return r.Host },
		roundTrip(func(r *http.Request) (*http.Response, error) {
			clock.SetTime(clock.Now().Add(2 * time.Second))
			status := map[string]int{"/ok": http.StatusOK, "/none": http.StatusNotFound}[r.URL.Path]
			if status == 0 {
				return nil, errors.New("no answer")
			}
			return &http.Response{StatusCode: status, Body: io.NopCloser(strings.NewReader(""))}, nil
		}))
	for _, path := range []string{"/ok", "/none", "/lost"} {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://vms"+path, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		if answer, err := transport.RoundTrip(request); err == nil {
			_ = answer.Body.Close()
		}
	}
	const want = `
# HELP mcm_cloud_api_requests_failed_total Requests of drivers to clouds without an answer, or with the status of an error.
# TYPE mcm_cloud_api_requests_failed_total counter
mcm_cloud_api_requests_failed_total{provider="p",service="vms"} 2
# HELP mcm_cloud_api_requests_total Requests that drivers have sent to clouds, by the resource of the cloud's API.
# TYPE mcm_cloud_api_requests_total counter
mcm_cloud_api_requests_total{provider="p",service="vms"} 3
`
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want), "mcm_cloud_api_requests_total",
		"mcm_cloud_api_requests_failed_total"); err != nil {
		t.Error(err)
	}
	if took := histogram(t, registry, "mcm_cloud_api_api_request_duration_seconds"); took.GetSampleCount() != 1 || took.GetSampleSum() != 2 {
		t.Errorf("%d requests took %g s, want 1 of 2 s", took.GetSampleCount(), took.GetSampleSum())
	}
}

// client-go keeps the metrics that were registered first, so that this is the only test of them
// here. A server may answer with any status.
func TestLabelsOfRESTClientMetricsAreBoundedForAnyStatus(t *testing.T) {
	registry := prometheus.NewRegistry()
	RegisterRESTClient(registry)
	RegisterRESTClient(prometheus.NewRegistry()) // ineffective, and no error
	for status := 100; status < 1000; status++ {
		clientmetrics.RequestResult.Increment(t.Context(), strconv.Itoa(status), "GET", "host")
	}
	clientmetrics.RequestResult.Increment(t.Context(), "<error>", "GET", "host")
	clientmetrics.RequestRetry.IncrementRetry(t.Context(), "429", "GET", "host")
	address := url.URL{Scheme: "https", Host: "host", Path: "/api/v1/nodes"}
	clientmetrics.RequestLatency.Observe(t.Context(), "GET", address, time.Second)
	clientmetrics.RateLimiterLatency.Observe(t.Context(), "GET", address, time.Second)
	if got := testutil.CollectAndCount(registry, "rest_client_requests_total"); got > 70 {
		t.Errorf("%d series of rest_client_requests_total, want one for each status that HTTP defines, one for others and one for errors", got)
	}
	for _, name := range []string{
		"rest_client_request_duration_seconds", "rest_client_rate_limiter_duration_seconds", "rest_client_request_retries_total",
	} {
		if got := testutil.CollectAndCount(registry, name); got != 1 {
			t.Errorf("%d series of %s, want 1", got, name)
		}
	}
	for i := range 1000 {
		address.Host = fmt.Sprint("host-", i)
		clientmetrics.RequestRetry.IncrementRetry(t.Context(), "429", "GET", address.Host)
		clientmetrics.RequestLatency.Observe(t.Context(), "GET", address, time.Second)
	}
	for _, name := range []string{"rest_client_request_duration_seconds", "rest_client_request_retries_total"} {
		if got := testutil.CollectAndCount(registry, name); got != mostHosts+1 {
			t.Errorf("%d series of %s, want those of %d servers and of others", got, name, mostHosts)
		}
	}
}
