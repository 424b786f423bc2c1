package update

import (
	"cmp"
	"slices"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/fleet/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/telemetry"
)

// mostPools is how many pools have their own metrics: the first ones by name.
const mostPools = 256

// Results of drains.
const (
	resultDrained = "drained"
	resultForced  = "forced"
)

// Counters count what this process has done.
type Counters struct {
	assigned prometheus.Counter
	drained  *prometheus.CounterVec
}

// NewCounters returns Counters that are 0.
func NewCounters() *Counters {
	c := &Counters{
		assigned: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "mcf_machineconfigpool_assignments_total", Help: "Nodes that were assigned a configuration.",
		}),
		drained: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "mcf_machineconfigpool_drains_total", Help: "Drains for a configuration that have ended, by result: drained, or forced.",
		}, []string{"result"}),
	}
	for _, result := range []string{resultDrained, resultForced} {
		c.drained.WithLabelValues(result)
	}
	return c
}

// Collectors return the metrics of pools. Those of each pool are calculated at each scrape from the
// pools that this replica works on, which pools returns. While acts returns false this replica may
// have lost its slots without a notice, and reports none.
func (c *Counters) Collectors(acts func() bool, pools func() []*v1alpha1.MachineConfigPool) []prometheus.Collector {
	shown := func() []*v1alpha1.MachineConfigPool {
		all := pools()
		slices.SortFunc(all, func(a, b *v1alpha1.MachineConfigPool) int {
			return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Namespace, b.Namespace))
		})
		return all[:min(len(all), mostPools)]
	}
	return []prometheus.Collector{c.assigned, c.drained, telemetry.NewGauges(acts, shown, gauges()...)}
}

func gauges() []telemetry.Gauge[*v1alpha1.MachineConfigPool] {
	type pool = *v1alpha1.MachineConfigPool
	return []telemetry.Gauge[pool]{
		telemetry.Number("mcf_machineconfigpool_nodes", "Nodes of the pool.", func(p pool) int32 { return p.Status.MachineCount }),
		telemetry.Number("mcf_machineconfigpool_updated_nodes", "Nodes that are done with the target, and Ready.", func(p pool) int32 {
			return p.Status.UpdatedMachineCount
		}),
		telemetry.Number("mcf_machineconfigpool_ready_nodes", "Updated Nodes that are available to pods.", func(p pool) int32 {
			return p.Status.ReadyMachineCount
		}),
		telemetry.Number("mcf_machineconfigpool_unavailable_nodes",
			"Nodes that are being updated, or not available to pods.", func(p pool) int32 { return p.Status.UnavailableMachineCount }),
		telemetry.Number("mcf_machineconfigpool_degraded_nodes", "Nodes whose daemon reports a failure.", func(p pool) int32 {
			return p.Status.DegradedMachineCount
		}),
		telemetry.OfEach("mcf_machineconfigpool_status_condition", "A condition: 1 is True, 0 False, 2 Unknown.",
			func(p pool, report telemetry.Measure) {
				for _, condition := range p.Status.Conditions {
					telemetry.EmitCondition(report, condition.Type, corev1.ConditionStatus(condition.Status))
				}
			}, "condition"),
	}
}
