package runner

import (
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/util/workqueue"
)

// mcmPrefix is before the names of the metrics of work queues in Machine Controller Manager.
const mcmPrefix = "mcm_"

// queueMetrics gives the work queues their metrics, under the names that Kubernetes' own
// controllers use.
type queueMetrics struct {
	depth, unfinished, longest *prometheus.GaugeVec
	adds, retries              *prometheus.CounterVec
	waited, worked             *prometheus.HistogramVec
}

var _ workqueue.MetricsProvider = (*queueMetrics)(nil)

func newQueueMetrics(registerer prometheus.Registerer) *queueMetrics {
	byName := []string{"name"}
	gauge := func(name, help string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, byName)
	}
	counter := func(name, help string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, byName)
	}
	histogram := func(name, help string) *prometheus.HistogramVec {
		buckets := prometheus.ExponentialBuckets(0.0001, 4, 12)
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}, byName)
	}
	m := &queueMetrics{
		depth:      gauge("workqueue_depth", "Keys that wait."),
		unfinished: gauge("workqueue_unfinished_work_seconds", "Age of the keys in work, summed."),
		longest:    gauge("workqueue_longest_running_processor_seconds", "Age of the oldest key in work."),
		adds:       counter("workqueue_adds_total", "Keys that were added."),
		retries:    counter("workqueue_retries_total", "Keys that were added again after a failure."),
		waited:     histogram("workqueue_queue_duration_seconds", "How long keys waited."),
		worked:     histogram("workqueue_work_duration_seconds", "How long keys were in work."),
	}
	m.register(registerer)
	return m
}

func (m *queueMetrics) register(registerer prometheus.Registerer) {
	registerer.MustRegister(m.depth, m.unfinished, m.longest, m.adds, m.retries, m.waited, m.worked)
}

func (m *queueMetrics) NewDepthMetric(name string) workqueue.GaugeMetric {
	return m.depth.WithLabelValues(name)
}

func (m *queueMetrics) NewAddsMetric(name string) workqueue.CounterMetric {
	return m.adds.WithLabelValues(name)
}

func (m *queueMetrics) NewLatencyMetric(name string) workqueue.HistogramMetric {
	return m.waited.WithLabelValues(name)
}

func (m *queueMetrics) NewWorkDurationMetric(name string) workqueue.HistogramMetric {
	return m.worked.WithLabelValues(name)
}

func (m *queueMetrics) NewUnfinishedWorkSecondsMetric(name string) workqueue.SettableGaugeMetric {
	return m.unfinished.WithLabelValues(name)
}

func (m *queueMetrics) NewLongestRunningProcessorSecondsMetric(name string) workqueue.SettableGaugeMetric {
	return m.longest.WithLabelValues(name)
}

func (m *queueMetrics) NewRetriesMetric(name string) workqueue.CounterMetric {
	return m.retries.WithLabelValues(name)
}
