package autoscaler

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"

	"github.com/machine-controller-fleet/machine-controller-fleet/internal/autoscaler/externalgrpc"
)

// Metrics are those of a Server.
type Metrics struct {
	calls   *prometheus.CounterVec
	seconds *prometheus.HistogramVec
	reads   *prometheus.CounterVec
}

// NewMetrics returns the metrics, with a series for each method.
func NewMetrics() *Metrics {
	m := &Metrics{
		calls: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "mcf_autoscaler_calls_total", Help: "Calls of cluster-autoscalers to this replica, by method and code of gRPC.",
		}, []string{"method", "code"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "mcf_autoscaler_call_seconds", Help: "How long calls of cluster-autoscalers to this replica took, by method.",
			Buckets: []float64{.001, .005, .025, .1, .5, 1, 5},
		}, []string{"method"}),
		reads: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "mcf_autoscaler_reads_total",
			Help: "How often this replica has read a namespace for its cluster-autoscaler, by result: read or failed.",
		}, []string{"result"}),
	}
	for _, method := range externalgrpc.CloudProvider_ServiceDesc.Methods {
		m.calls.WithLabelValues(method.MethodName, codes.OK.String())
		m.seconds.WithLabelValues(method.MethodName)
	}
	for _, result := range []string{"read", "failed"} {
		m.reads.WithLabelValues(result)
	}
	return m
}

// Collectors returns the metrics, to be registered.
func (m *Metrics) Collectors() []prometheus.Collector {
	return []prometheus.Collector{m.calls, m.seconds, m.reads}
}

func (m *Metrics) called(method string, code codes.Code, took time.Duration) {
	m.calls.WithLabelValues(method, code.String()).Inc()
	m.seconds.WithLabelValues(method).Observe(took.Seconds())
}

func (m *Metrics) read(result string) { m.reads.WithLabelValues(result).Inc() }
