package replica

import (
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/machine-controller-fleet/machine-controller-fleet/internal/apianswers"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/target/reach"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/zpages"
)

// clocks returns the times of the clusters, by cluster.
func (c *clients) clocks() map[string]*apianswers.Clock {
	all := map[string]*apianswers.Clock{"control": c.wall}
	if c.targetWall != nil {
		all["target"] = c.targetWall
	}
	return all
}

// jump returns the last jump of a cluster's clock as an outage, in the time of the control cluster:
// between what times on objects from before show and what they would show by the clock as it is
// now, no time has passed.
func (c *clients) jump(its *apianswers.Clock) reach.Fact {
	at, by := its.LastJump()
	if by == 0 {
		return reach.Fact{}
	}
	back := c.wall.At(at)
	return reach.Fact{From: back.Add(-by), Back: back}
}

// registerClocks registers the metric of the clocks.
func (c *clients) registerClocks(registerer prometheus.Registerer) {
	for server, is := range c.clocks() {
		registerer.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "mcf_clock_offset_seconds", ConstLabels: prometheus.Labels{"server": server},
			Help: "By how many seconds the clock of this API server is ahead of the one of this replica, as far as its answers have shown; " +
				"to the second, and not corrected up to 5 s.",
		}, func() float64 { return is.Ahead().Round(time.Second).Seconds() }))
	}
}

// clockRows returns what /statusz shows of clocks that differ from the one of this process.
func (c *clients) clockRows() (rows []zpages.Row) {
	for _, server := range []string{"control", "target"} {
		if is := c.clocks()[server]; is != nil {
			if ahead := is.Ahead(); ahead.Abs() > apianswers.ClockTolerance {
				rows = append(rows, zpages.Row{
					Name: "Clock of the " + server + " cluster", Value: fmt.Sprintf("%s ahead of this process", ahead.Round(time.Second)),
				})
			}
		}
	}
	return rows
}
