package replica

import (
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/remediation"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/disruption"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/pacing"
	"github.com/machine-controller-fleet/machine-controller-fleet/shard/slotlabel/policy"
)

// addRemediation adds the remediation of unhealthy machines.
func (c *controllers) addRemediation(d *deps) (err error) {
	c.remediation, err = remediation.New(remediation.Config{
		Machines: d.machines, View: d.view, Targets: d.targets, Namespaces: d.namespaces,
		Servers:          d.outages(),
		DeploymentEvents: d.recorder(v1alpha1.EventSourceMachineDeployment), SetEvents: d.recorder(v1alpha1.EventSourceMachineSet),
		Limits: disruption.Limits{
			HealthTimeout: d.o.Health.Timeout, Budget: intstr.Parse(d.o.Health.DisruptionBudget), Thresholds: d.o.Health.Thresholds,
		},
		Replica: d.o.Name, Holds: d.session.fence.Holds, Held: d.holds.Held, Budget: d.budget,
		SlotOf: func(labels map[string]string) (int, bool) {
			return policy.Read(labels[v1alpha1.LabelSlot], d.slots.spread.Count())
		},
		DeploymentGate: d.slots.gate(policy.Deployment),
		SetGate:        d.slots.gate(policy.Set),
		Clock:          d.wall, Workers: d.o.ConcurrentSyncs, Gather: pacing.RootInterval, Metrics: d.metrics, Tracer: d.tracer,
	})
	if err != nil {
		return err
	}
	c.add(c.remediation, heldDeletions(d.session.fence.Acts, c.remediation))
	return nil
}

// countBreakers registers a metric of the open circuit breakers.
func countBreakers(registerer prometheus.Registerer, breakers *remediation.Breakers) {
	registerer.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "mcf_open_circuit_breakers",
		Help: "Zones and target clusters, in all namespaces or in one, in which this replica replaces no unhealthy machine, " +
			"because too many are not Ready; with different thresholds, each counts.",
	}, func() (open float64) {
		for _, is := range breakers.Snapshots().Of {
			open += float64(len(is.Open))
		}
		return open
	}))
}

// heldDeletions returns a metric of the machines that wait because deletions are held or the
// deletion budget is exhausted. While acts returns false this replica may have lost its slots
// without a notice, and reports 0.
func heldDeletions(acts func() bool, replacements *remediation.Controller) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "mcf_deletions_held",
		Help: "Machines in this replica's slots that should be deleted or replaced and are not, " +
			"because deletions are held or the deletion budget is exhausted.",
	}, func() float64 {
		if !acts() {
			return 0
		}
		return float64(replacements.Waiting())
	})
}
