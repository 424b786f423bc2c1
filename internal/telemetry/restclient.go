package telemetry

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	clientmetrics "k8s.io/client-go/tools/metrics"
)

// otherCode stands for all statuses that HTTP does not define: a server may answer with any number.
const otherCode = "other"

// RegisterRESTClient registers the metrics of requests to API servers. client-go has one set of
// them for a process, and keeps the one that was registered first.
func RegisterRESTClient(registerer prometheus.Registerer) {
	buckets := []float64{0.005, 0.025, 0.1, 0.25, 0.5, 1, 2, 4, 8, 15, 30, 60}
	byHost := func(name, help string) byHost {
		return byHost{prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}, []string{"verb", "host"})}
	}
	m := &restClientMetrics{
		seconds: byHost("rest_client_request_duration_seconds", "How long requests to API servers took, with retries; watches are not counted."),
		waits:   byHost("rest_client_rate_limiter_duration_seconds", "How long requests waited for the limit of requests a second."),
		requests: newCounter("rest_client_requests_total", "Requests to API servers by the status of the answer, or <error> without one.",
			"code", "method", "host"),
		retries: newCounter("rest_client_request_retries_total", "Requests to API servers that were sent again, by the status of the answer.",
			"code", "verb", "host"),
	}
	registerer.MustRegister(m.seconds.HistogramVec, m.waits.HistogramVec, m.requests, m.retries)
	clientmetrics.Register(clientmetrics.RegisterOpts{RequestLatency: m.seconds, RateLimiterLatency: m.waits, RequestResult: m, RequestRetry: m})
}

// restClientMetrics implements the interfaces of client-go's metrics.
type restClientMetrics struct {
	seconds, waits    byHost
	requests, retries *prometheus.CounterVec
}

// byHost are durations by the server.
type byHost struct{ *prometheus.HistogramVec }

// Observe counts a duration.
func (h byHost) Observe(ctx context.Context, verb string, u url.URL, duration time.Duration) {
	Observe(ctx, h.WithLabelValues(verb, u.Host), duration)
}

// Increment counts an attempt.
func (m *restClientMetrics) Increment(_ context.Context, code, method, host string) {
	m.requests.WithLabelValues(knownCode(code), method, host).Inc()
}

// IncrementRetry counts an attempt after the first.
func (m *restClientMetrics) IncrementRetry(_ context.Context, code, method, host string) {
	m.retries.WithLabelValues(knownCode(code), method, host).Inc()
}

// knownCode returns a status as client-go reports it, if HTTP defines it.
func knownCode(code string) string {
	if number, err := strconv.Atoi(code); err == nil && http.StatusText(number) == "" {
		return otherCode
	}
	return code
}
