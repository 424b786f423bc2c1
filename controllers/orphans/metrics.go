package orphans

import (
	"maps"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/utils/clock"

	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/orphans/decide"
	"github.com/machine-controller-fleet/machine-controller-fleet/driver"
)

// Results of sweeps.
const (
	resultComplete   = "complete"
	resultIncomplete = "incomplete"
	resultSkipped    = "skipped"
)

// States of orphans in metrics.
const (
	stateSuspected = "suspected"
	stateHeld      = "held"
)

// remembered is for how many periods the counts of a namespace are shown: those of a replica that
// leads no more disappear.
const remembered = 3

// orphanMetrics are the metrics of sweeps. It is a prometheus.Collector of the numbers of orphans.
type orphanMetrics struct {
	sweeps, deletions *prometheus.CounterVec
	lastComplete      prometheus.Gauge
	current           *prometheus.Desc
	clock             clock.PassiveClock
	period            time.Duration

	mu         sync.Mutex
	namespaces map[string]orphanCounts
}

// orphanCounts are the orphans of a namespace in its last sweep.
type orphanCounts struct {
	at     time.Time
	counts map[[2]string]int // by state and kind
}

// newOrphanMetrics returns the metrics, with a series for each result and each kind, so that their
// increase counts the first one.
func newOrphanMetrics(c clock.PassiveClock, period time.Duration) *orphanMetrics {
	m := &orphanMetrics{
		sweeps: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "mcf_orphan_sweeps_total",
			Help: "Sweeps of namespaces for orphans, by result: complete, incomplete after an error, " +
				"or skipped because another manager serves the namespace, or the ID of the control cluster is not known.",
		}, []string{"result"}),
		deletions: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "mcf_orphan_deletions_total", Help: "Orphans whose deletion a cloud has accepted, by kind.",
		}, []string{"kind"}),
		lastComplete: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "mcf_orphan_sweep_last_complete_timestamp_seconds",
			Help: "Unix time of the end of the last complete sweep of a namespace by this replica; 0 before the first.",
		}),
		current: prometheus.NewDesc("mcf_orphans",
			"Resources at clouds without a Machine, by kind, and by state: suspected, or held until their deletion is approved. "+
				"Only the leader reports them.",
			[]string{"state", "kind"}, nil),
		clock: c, period: period, namespaces: map[string]orphanCounts{},
	}
	for _, result := range []string{resultComplete, resultIncomplete, resultSkipped} {
		m.sweeps.WithLabelValues(result)
	}
	for _, kind := range driver.ResourceKinds() {
		m.deletions.WithLabelValues(string(kind))
	}
	return m
}

func (m *orphanMetrics) collectors() []prometheus.Collector {
	return []prometheus.Collector{m.sweeps, m.deletions, m.lastComplete, m}
}

func (m *orphanMetrics) swept(result string) {
	m.sweeps.WithLabelValues(result).Inc()
	if result == resultComplete {
		m.lastComplete.Set(float64(m.clock.Now().Unix()))
	}
}

func (m *orphanMetrics) deleted(kind driver.ResourceKind) {
	m.deletions.WithLabelValues(string(kind)).Inc()
}

// show records the orphans of a namespace.
func (m *orphanMetrics) show(namespace string, scopes []*scope) {
	is := orphanCounts{at: m.clock.Now(), counts: map[[2]string]int{}}
	for _, sc := range scopes {
		for _, suspect := range sc.suspects {
			state := stateSuspected
			if sc.verdicts[suspect.Key()].Do == decide.Hold {
				state = stateHeld
			}
			is.counts[[2]string{state, string(suspect.Kind)}]++
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.namespaces[namespace] = is
}

// keepOnly forgets namespaces that have no MachineClasses any more.
func (m *orphanMetrics) keepOnly(namespaces map[string]bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	maps.DeleteFunc(m.namespaces, func(namespace string, _ orphanCounts) bool { _, has := namespaces[namespace]; return !has })
}

// Describe is prometheus.Collector's.
func (m *orphanMetrics) Describe(descriptions chan<- *prometheus.Desc) { descriptions <- m.current }

// Collect is prometheus.Collector's.
func (m *orphanMetrics) Collect(metrics chan<- prometheus.Metric) {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := map[[2]string]int{}
	for _, namespace := range m.namespaces {
		if m.clock.Since(namespace.at) > remembered*m.period {
			continue
		}
		for labels, count := range namespace.counts {
			all[labels] += count
		}
	}
	for labels, count := range all {
		metrics <- prometheus.MustNewConstMetric(m.current, prometheus.GaugeValue, float64(count), labels[0], labels[1])
	}
}
