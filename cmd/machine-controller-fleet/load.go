package main

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/machine-controller-fleet/machine-controller-fleet/shard/load"
)

// loadGauges exports how much of the work of one replica this one carries, for an autoscaler.
type loadGauges struct {
	acts        func() bool
	work        func() load.Work
	capacity    load.Capacity
	description *prometheus.Desc
}

// newLoadGauges returns the gauges. While acts returns false this replica may have lost its slots without a notice, and exports
// none: another one may report the same work.
func newLoadGauges(acts func() bool, work func() load.Work, capacity load.Capacity) *loadGauges {
	return &loadGauges{acts: acts, work: work, capacity: capacity, description: prometheus.NewDesc("mcf_load",
		"The work of this replica, in units of what one replica should carry, by dimension: machines, transitions or queue. "+
			"The largest of the sums over all replicas is the number of replicas that the fleet needs.",
		[]string{"dimension"}, nil)}
}

// measure returns the work of this replica.
func (f *fleet) measure() load.Work {
	return load.Count(f.view.Machines.All(), f.metrics.Overdue(load.OverdueAfter))
}

// Describe is prometheus.Collector's.
func (g *loadGauges) Describe(descriptions chan<- *prometheus.Desc) { descriptions <- g.description }

// Collect is prometheus.Collector's.
func (g *loadGauges) Collect(metrics chan<- prometheus.Metric) {
	if !g.acts() {
		return
	}
	for dimension, value := range load.Of(g.work(), g.capacity) {
		metrics <- prometheus.MustNewConstMetric(g.description, prometheus.GaugeValue, value, string(dimension))
	}
}
