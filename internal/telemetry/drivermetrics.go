package telemetry

import (
	"context"
	"errors"
	"net/http"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/utils/clock"

	"github.com/machine-controller-fleet/machine-controller-fleet/driver"
)

// DriverMetrics are the metrics of the calls of drivers. Those that begin with mcm have the names,
// labels and types of Machine Controller Manager.
type DriverMetrics struct {
	clock clock.PassiveClock

	calls, callsFailed *prometheus.CounterVec
	callSeconds        *prometheus.HistogramVec
}

// RequestMetrics are the metrics of the requests that drivers send to clouds, for the processes of
// drivers: the fleet sends none. They have the names, labels and types of Machine Controller
// Manager.
type RequestMetrics struct {
	clock clock.PassiveClock

	requests, failed *prometheus.CounterVec
	seconds          *prometheus.HistogramVec
}

func newCounter(name, help string, labels ...string) *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
}

// newSeconds adds buckets for what takes up to a minute to Prometheus' default buckets, which
// Machine Controller Manager has.
func newSeconds(name, help string, labels ...string) *prometheus.HistogramVec {
	buckets := append(append([]float64{}, prometheus.DefBuckets...), 30, 60)
	return prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}, labels)
}

// NewDriverMetrics returns the metrics, registered.
func NewDriverMetrics(registerer prometheus.Registerer, c clock.PassiveClock) *DriverMetrics {
	m := &DriverMetrics{
		clock: c,
		calls: newCounter("mcf_driver_calls_total", "Calls of drivers by code, which is OK for those that succeeded, "+
			"and Throttled for those that the cloud has refused because there were too many.", "provider", "operation", "code"),
		callSeconds: newSeconds("mcm_cloud_api_driver_request_duration_seconds", "How long calls of drivers took that succeeded.",
			"provider", "operation"),
		callsFailed: newCounter("mcm_cloud_api_driver_requests_failed_total",
			"Calls of drivers that returned an error, by the number of its code.",
			"provider", "operation", "error_code"),
	}
	registerer.MustRegister(m.calls, m.callSeconds, m.callsFailed)
	return m
}

// NewRequestMetrics returns the metrics, registered.
func NewRequestMetrics(registerer prometheus.Registerer, c clock.PassiveClock) *RequestMetrics {
	m := &RequestMetrics{
		clock: c,
		requests: newCounter("mcm_cloud_api_requests_total", "Requests that drivers have sent to clouds, by the resource of the cloud's API.",
			"provider", "service"),
		failed: newCounter("mcm_cloud_api_requests_failed_total",
			"Requests of drivers to clouds without an answer, or with the status of an error.",
			"provider", "service"),
		seconds: newSeconds("mcm_cloud_api_api_request_duration_seconds",
			"How long it took clouds to begin the answers to requests that succeeded.",
			"provider", "service"),
	}
	registerer.MustRegister(m.requests, m.failed, m.seconds)
	return m
}

// begin returns the function that counts a call of a driver when it has ended, with its error. A
// nil DriverMetrics counts nothing.
func (m *DriverMetrics) begin(ctx context.Context, provider string, op driver.Op) (end func(error)) {
	if m == nil {
		return func(error) {}
	}
	start := m.clock.Now()
	return func(err error) {
		if isRefused(err) {
			return
		}
		code := driver.CodeOf(err)
		Count(ctx, m.calls.WithLabelValues(provider, string(op), driver.KindOf(err)))
		if err != nil {
			m.callsFailed.WithLabelValues(provider, string(op), strconv.Itoa(int(code))).Inc()
			return
		}
		Observe(ctx, m.callSeconds.WithLabelValues(provider, string(op)), m.clock.Since(start))
	}
}

// isRefused reports whether a call of a driver was not sent, because another replica may act;
// mcf_refused_total counts those.
func isRefused(err error) bool {
	_, refused := errors.AsType[interface {
		error
		NotOurs() bool
	}](err)
	return refused
}

// Transport returns a transport that counts the requests of a driver. service returns the resource
// that a request is about, of which there must be few.
func (m *RequestMetrics) Transport(provider string, service func(*http.Request) string, next http.RoundTripper) http.RoundTripper {
	return &countedTransport{metrics: m, provider: provider, service: service, next: next}
}

type countedTransport struct {
	metrics  *RequestMetrics
	provider string
	service  func(*http.Request) string
	next     http.RoundTripper
}

// RoundTrip is http.RoundTripper's.
func (t *countedTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	m, service := t.metrics, t.service(r)
	start := m.clock.Now()
	answer, err := t.next.RoundTrip(r)
	m.requests.WithLabelValues(t.provider, service).Inc()
	if err != nil || answer.StatusCode >= http.StatusBadRequest {
		m.failed.WithLabelValues(t.provider, service).Inc()
		return answer, err
	}
	Observe(r.Context(), m.seconds.WithLabelValues(t.provider, service), m.clock.Since(start))
	return answer, nil
}

// WrappedRoundTripper returns the transport below, through which client-go finds the connections to
// close.
func (t *countedTransport) WrappedRoundTripper() http.RoundTripper { return t.next }
