package telemetry

import (
	"context"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	clientmetrics "k8s.io/client-go/tools/metrics"
)

// other stands for all statuses that HTTP does not define, since a server may answer with any
// number, and for the servers after the first mostHosts: the Secrets of tenants name them.
const (
	other     = "other"
	mostHosts = 32
)

// RegisterRESTClient registers the metrics of requests to API servers. client-go has one set of
// them for a process, and keeps the one that was registered first.
func RegisterRESTClient(registerer prometheus.Registerer) {
	known := &hosts{}
	buckets := []float64{0.005, 0.025, 0.1, 0.25, 0.5, 1, 2, 4, 8, 15, 30, 60}
	byHost := func(name, help string) byHost {
		return byHost{
			prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}, []string{"verb", "host"}), known,
		}
	}
	m := &restClientMetrics{
		hosts:   known,
		seconds: byHost("rest_client_request_duration_seconds", "How long requests to API servers took, with retries; watches are not counted."),
		waits:   byHost("rest_client_rate_limiter_duration_seconds", "How long requests waited for the limit of requests a second."),
		requests: newCounter("rest_client_requests_total", "Requests to API servers by the status of the answer, or <error> without one.",
			"code", "method", "host"),
		retries: newCounter("rest_client_request_retries_total", "Requests to API servers that were sent again, by the status of the answer.",
			"code", "verb", "host"),
	}
	registerer.MustRegister(m.seconds.HistogramVec, m.waits.HistogramVec, m.requests, m.retries)
	clientmetrics.Register(clientmetrics.RegisterOpts{
		RequestLatency: m.seconds, RateLimiterLatency: m.waits, RequestResult: m, RequestRetry: m,
	})
}

// restClientMetrics implements the interfaces of client-go's metrics.
type restClientMetrics struct {
	hosts             *hosts
	seconds, waits    byHost
	requests, retries *prometheus.CounterVec
}

// byHost are durations by the server.
type byHost struct {
	*prometheus.HistogramVec

	hosts *hosts
}

// Observe counts a duration.
func (h byHost) Observe(ctx context.Context, verb string, u url.URL, duration time.Duration) {
	Observe(ctx, h.WithLabelValues(verb, h.hosts.label(u.Host)), duration)
}

// Increment counts an attempt.
func (m *restClientMetrics) Increment(_ context.Context, code, method, host string) {
	m.requests.WithLabelValues(knownCode(code), method, m.hosts.label(host)).Inc()
}

// IncrementRetry counts an attempt after the first.
func (m *restClientMetrics) IncrementRetry(_ context.Context, code, method, host string) {
	m.retries.WithLabelValues(knownCode(code), method, m.hosts.label(host)).Inc()
}

// knownCode returns a status as client-go reports it, if HTTP defines it.
func knownCode(code string) string {
	if number, err := strconv.Atoi(code); err == nil && http.StatusText(number) == "" {
		return other
	}
	return code
}

// hosts are the servers that have a label.
type hosts struct {
	mu    sync.Mutex
	known []string
}

// label returns the label of a server.
func (h *hosts) label(host string) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case slices.Contains(h.known, host):
		return host
	case len(h.known) < mostHosts:
		h.known = append(h.known, host)
		return host
	}
	return other
}
