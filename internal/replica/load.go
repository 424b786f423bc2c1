package replica

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/machine-controller-fleet/machine-controller-fleet/shard/assignment"
)

// loadGauges exports how much of the work of one replica this one carries, for an autoscaler.
type loadGauges struct {
	acts         func() bool
	work         func() assignment.Work
	capacity     assignment.Capacity
	load, inLoad *prometheus.Desc
}

// newLoadGauges returns the gauges. While acts returns false this replica may have lost its slots
// without a notice, and exports none: another one may report the same work.
func newLoadGauges(acts func() bool, work func() assignment.Work, capacity assignment.Capacity) *loadGauges {
	return &loadGauges{
		acts: acts, work: work, capacity: capacity,
		load: prometheus.NewDesc("mcf_load",
			"The work of this replica, in units of what one replica should carry, by dimension: machines, transitions or queue. "+
				"The largest of the sums over all replicas is the number of replicas that the fleet needs.",
			[]string{"dimension"}, nil),
		inLoad: prometheus.NewDesc("mcf_load_slots", "Slots whose work is in mcf_load: those of this replica that are open.", nil, nil),
	}
}

// measure returns the work of this replica.
func (d *deps) measure() assignment.Work {
	return assignment.CountWork(d.slots.spread.Count(), d.session.fence.Holds, d.view.Machines.Of, d.metrics.Overdue(assignment.OverdueAfter))
}

// Describe is prometheus.Collector's.
func (g *loadGauges) Describe(descriptions chan<- *prometheus.Desc) {
	descriptions <- g.load
	descriptions <- g.inLoad
}

// Collect is prometheus.Collector's.
func (g *loadGauges) Collect(metrics chan<- prometheus.Metric) {
	if !g.acts() {
		return
	}
	work := g.work()
	metrics <- prometheus.MustNewConstMetric(g.inLoad, prometheus.GaugeValue, float64(work.Slots))
	for dimension, value := range assignment.LoadOf(work, g.capacity) {
		metrics <- prometheus.MustNewConstMetric(g.load, prometheus.GaugeValue, value, string(dimension))
	}
}
