package runner

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/machine-controller-fleet/machine-controller-fleet/internal/telemetry"
)

// waitingKeys are the keys of one runner that wait for a worker.
type waitingKeys interface {
	oldest() time.Duration
	overdue(after time.Duration) int
}

// Metrics of all runners of a process, under the names that dashboards for controllers know.
type Metrics struct {
	registerer prometheus.Registerer
	queues     *queueMetrics

	total, errors, conflicts, panics *prometheus.CounterVec
	seconds                          *prometheus.HistogramVec
	maxConcurrent, busy              *prometheus.GaugeVec

	mu      sync.Mutex
	overdue []func(after time.Duration) int // of each runner
}

// NewMetrics returns the metrics, registered.
func NewMetrics(registerer prometheus.Registerer) *Metrics {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, append([]string{"controller"}, labels...))
	}
	gauge := func(name, help string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, []string{"controller"})
	}
	m := &Metrics{
		registerer: registerer,
		queues:     newQueueMetrics(registerer),
		total: counter("controller_runtime_reconcile_total",
			"Reconciles by controller and result: success, requeue_after, error, conflict, or not_ours when the key was lost meanwhile.", "result"),
		errors: counter("controller_runtime_reconcile_errors_total", "Reconciles that ended in an error other than a conflict."),
		conflicts: counter("mcf_conflicts_total",
			"Reconciles that ended because another client had changed an object first. They are tried again."),
		panics: counter("controller_runtime_reconcile_panics_total", "Reconciles that ended in a panic."),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "controller_runtime_reconcile_time_seconds",
			Help:    "How long reconciles took.",
			Buckets: prometheus.ExponentialBuckets(0.001, 2, 16),
		}, []string{"controller"}),
		maxConcurrent: gauge("controller_runtime_max_concurrent_reconciles", "Workers of each controller."),
		busy:          gauge("controller_runtime_active_workers", "Workers that have a key."),
	}
	registerer.MustRegister(m.total, m.errors, m.conflicts, m.panics, m.seconds, m.maxConcurrent, m.busy)
	return m
}

// RepeatForMCM registers the metrics of work queues a second time, under their names in Machine
// Controller Manager.
func (m *Metrics) RepeatForMCM() {
	m.queues.register(prometheus.WrapRegistererWithPrefix(mcmPrefix, m.registerer))
}

// Overdue returns how many keys of all runners have waited for a worker for longer than after.
func (m *Metrics) Overdue(after time.Duration) (keys int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, of := range m.overdue {
		keys += of(after)
	}
	return keys
}

// watch registers the gauges of one runner. failure and waiting are called at each scrape.
func (m *Metrics) watch(controller string, workers int, failure func() (age time.Duration, keys int), waiting waitingKeys) {
	m.mu.Lock()
	m.overdue = append(m.overdue, waiting.overdue)
	m.mu.Unlock()
	m.maxConcurrent.WithLabelValues(controller).Set(float64(workers))
	for _, counter := range []*prometheus.CounterVec{m.errors, m.conflicts, m.panics} {
		counter.WithLabelValues(controller) // the rate of a series that appears with its first value would miss that
	}
	labels := prometheus.Labels{"controller": controller}
	m.registerer.MustRegister(
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "mcf_oldest_failing_key_seconds", ConstLabels: labels,
			Help: "How long the key that has failed for longest has done so; 0 when none fails.",
		}, func() float64 { age, _ := failure(); return age.Seconds() }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "mcf_failing_keys", ConstLabels: labels,
			Help: "Keys whose last reconcile failed.",
		}, func() float64 { _, keys := failure(); return float64(keys) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "mcf_oldest_waiting_key_seconds", ConstLabels: labels,
			Help: "How long the key that has waited for a worker for longest has done so; 0 when none waits.",
		}, func() float64 { return waiting.oldest().Seconds() }),
	)
}

// observe counts one reconcile. A nil Metrics counts nothing.
func (m *Metrics) observe(ctx context.Context, controller string, took time.Duration, result Result, err error) {
	if m == nil {
		return
	}
	telemetry.Observe(ctx, m.seconds.WithLabelValues(controller), took)
	outcome := "success"
	switch {
	case NotOurs(err):
		outcome = "not_ours"
	case isConflict(err):
		outcome = "conflict"
		m.conflicts.WithLabelValues(controller).Inc()
	case err != nil:
		outcome = "error"
		m.errors.WithLabelValues(controller).Inc()
		if _, panicked := errors.AsType[*PanicError](err); panicked {
			m.panics.WithLabelValues(controller).Inc()
		}
	case result.RequeueAfter > 0:
		outcome = "requeue_after"
	}
	m.total.WithLabelValues(controller, outcome).Inc()
}

// active adds a worker with a key (+1), or removes one (-1).
func (m *Metrics) active(controller string, delta float64) {
	if m != nil {
		m.busy.WithLabelValues(controller).Add(delta)
	}
}
