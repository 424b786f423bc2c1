package telemetry

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// exemplarLabel has the ID of a trace in exemplars. OpenTelemetry's and Grafana's default name is
// the same.
const exemplarLabel = "trace_id"

// Observe records a duration in seconds, with the trace in ctx as its exemplar if that is sampled.
func Observe(ctx context.Context, histogram prometheus.Observer, duration time.Duration) {
	seconds := duration.Seconds()
	if exemplars, ok := histogram.(prometheus.ExemplarObserver); ok {
		if id, sampled := TraceID(ctx); sampled {
			exemplars.ObserveWithExemplar(seconds, prometheus.Labels{exemplarLabel: id})
			return
		}
	}
	histogram.Observe(seconds)
}

// Count adds one to a counter, with the trace in ctx as its exemplar if that is sampled.
func Count(ctx context.Context, counter prometheus.Counter) {
	if exemplars, ok := counter.(prometheus.ExemplarAdder); ok {
		if id, sampled := TraceID(ctx); sampled {
			exemplars.AddWithExemplar(1, prometheus.Labels{exemplarLabel: id})
			return
		}
	}
	counter.Inc()
}
