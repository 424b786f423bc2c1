package machine

import (
	"context"
	"slices"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machine/lifecycle"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/deletion/receipt"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/telemetry"
)

// mostNamespaces is how many namespaces have their own series in a replica; the rest share those of
// telemetry.OtherName.
const mostNamespaces = 256

// namespaceMetrics are metrics by the namespace of machines, in the label machine_namespace:
// Prometheus has the one of the replica in namespace.
type namespaceMetrics struct {
	names     *telemetry.Names
	steps     *prometheus.HistogramVec
	deletions *prometheus.CounterVec
}

func newNamespaceMetrics() *namespaceMetrics {
	return &namespaceMetrics{
		names: telemetry.NewNames(mostNamespaces),
		steps: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "mcf_namespace_step_seconds",
			Help:    "How long the steps join and delete took, by the namespace of the machine.",
			Buckets: []float64{60, 180, 300, 600, 1200, 1800, 3600},
		}, []string{"machine_namespace", "step"}),
		deletions: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "mcf_namespace_deletions_total",
			Help: "Machines whose deletion has begun, also those that clients have deleted, by the namespace of the machine; " +
				"without those that a rollout has replaced.",
		}, []string{"machine_namespace"}),
	}
}

// found creates the series of a namespace in which a machine was found: the increase of one that
// appears with the first deletion would miss it.
func (m *namespaceMetrics) found(namespace string) {
	name := m.names.Name(namespace)
	m.deletions.WithLabelValues(name)
	for _, step := range namespaceSteps() {
		m.steps.WithLabelValues(name, string(step))
	}
}

// namespaceSteps are the steps that are measured by namespace: those whose duration shows a pool
// that does not work.
func namespaceSteps() []lifecycle.Step {
	return []lifecycle.Step{lifecycle.StepJoin, lifecycle.StepDelete}
}

// ended observes steps of a machine in a namespace.
func (m *namespaceMetrics) ended(ctx context.Context, namespace string, steps []lifecycle.Took) {
	for _, took := range steps {
		if slices.Contains(namespaceSteps(), took.Step) {
			telemetry.Observe(ctx, m.steps.WithLabelValues(m.names.Name(namespace), string(took.Step)), took.Duration)
		}
	}
}

// deletionBegan counts the deletion of a machine in a namespace. A rollout creates a machine for
// each one that it deletes.
func (m *namespaceMetrics) deletionBegan(namespace string, why receipt.Rule) {
	if why != receipt.RolledOut {
		m.deletions.WithLabelValues(m.names.Name(namespace)).Inc()
	}
}
