package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/remediation"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/disruption"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/flags"
	"github.com/machine-controller-fleet/machine-controller-fleet/shard/slotlabel/policy"
)

// healthOptions are the flags of the health of machines, and of remediation.
type healthOptions struct {
	timeout          time.Duration
	nodeConditions   []string
	disruptionBudget string
	thresholds       disruption.Thresholds
}

func (o *healthOptions) declare(g *flags.Group) {
	t := disruption.DefaultThresholds()
	g.Duration(&o.timeout, "machine-health-timeout", 10*time.Minute, "how long a machine may be unhealthy before it has failed and is replaced; 0 means at once", flags.OrZero)
	g.List(&o.nodeConditions, "node-conditions", []string{"KernelDeadlock", "ReadonlyFilesystem", "DiskPressure", "NetworkUnavailable"}, "types of Node conditions, separated by commas, that must be False on a healthy Node")
	g.String(&o.disruptionBudget, "disruption-budget", "1", "how many machines of a MachineDeployment may be on their way out or in for an unhealthy one to be replaced: a number, or a percentage of its replicas, rounded down and at least 1")
	g.Int(&o.thresholds.NotReady, "circuit-breaker-not-ready", t.NotReady, "how many machines of a zone, or of a whole target cluster, have to be not Ready, and be more than --circuit-breaker-percent of them, to open the circuit breaker there: unhealthy machines are not replaced; the annotation "+v1alpha1.AnnotationCircuitBreaker+" on a MachineDeployment, or on its Namespace, goes before all of these flags")
	g.Int(&o.thresholds.Percent, "circuit-breaker-percent", t.Percent, "see --circuit-breaker-not-ready; with 100 the circuit breaker never opens")
	g.Int(&o.thresholds.ClosePercent, "circuit-breaker-close-percent", t.ClosePercent, "unhealthy machines are replaced again where less than this percentage has not been Ready for --circuit-breaker-close-after")
	g.Duration(&o.thresholds.CloseAfter, "circuit-breaker-close-after", t.CloseAfter, "see --circuit-breaker-close-percent", flags.OrZero)
	g.Duration(&o.thresholds.TryAfter, "circuit-breaker-try-after", t.TryAfter, "where the circuit breaker stays open, a machine that should have been replaced this long ago is replaced if no other one of its MachineDeployment is; 0 means never", flags.OrZero)
}

func (o *healthOptions) validate() error {
	var errs []error
	limit := intstr.Parse(o.disruptionBudget)
	if n, err := intstr.GetScaledValueFromIntOrPercent(&limit, 100, false); err != nil || n < 1 || limit.Type == intstr.String && n > 100 {
		errs = append(errs, fmt.Errorf("--disruption-budget: expected a number of at least 1, or 1%% to 100%%, got %q", o.disruptionBudget))
	}
	if err := o.thresholds.Validate(); err != nil {
		errs = append(errs, fmt.Errorf("--circuit-breaker-…: %w", err))
	}
	return errors.Join(errs...)
}

// newRemediation wires the remediation of unhealthy machines.
func newRemediation(o options, f *fleet) (*remediation.Controller, error) {
	return remediation.New(remediation.Config{
		Machines: f.machines.MachineV1alpha1(), View: f.view, Targets: f.targets, Namespaces: f.namespaces,
		Servers:          f.outages(),
		DeploymentEvents: f.recorder(v1alpha1.EventSourceMachineDeployment), SetEvents: f.recorder(v1alpha1.EventSourceMachineSet),
		Limits: disruption.Limits{
			HealthTimeout: o.health.timeout, Budget: intstr.Parse(o.health.disruptionBudget), Thresholds: o.health.thresholds,
		},
		Replica: o.replicaName, Holds: f.session.fence.Holds, Held: f.holds.Held, Budget: f.budget,
		SlotOf: func(labels map[string]string) (int, bool) {
			return policy.Read(labels[v1alpha1.LabelSlot], f.slots.spread.Count())
		},
		DeploymentGate: f.slots.gate(policy.Deployment),
		SetGate:        f.slots.gate(policy.Set),
		Clock:          f.wall, Workers: o.concurrentSyncs, Metrics: f.metrics, Tracer: f.tracer,
	})
}

// countBreakers registers a metric of the open circuit breakers.
func countBreakers(registerer prometheus.Registerer, breakers *remediation.Breakers) {
	registerer.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "mcf_open_circuit_breakers",
		Help: "Zones and target clusters, in all namespaces or in one, in which this replica replaces no unhealthy machine, because too many are not Ready; with different thresholds, each counts.",
	}, func() (open float64) {
		for _, is := range breakers.Snapshots().Of {
			open += float64(len(is.Open))
		}
		return open
	}))
}

// heldDeletions returns a metric of the machines that wait because deletions are held or the deletion budget is exhausted. While acts returns false this replica may have lost
// its slots without a notice, and reports 0.
func heldDeletions(acts func() bool, replacements *remediation.Controller) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "mcf_deletions_held",
		Help: "Machines in this replica's slots that should be deleted or replaced and are not, because deletions are held or the deletion budget is exhausted.",
	}, func() float64 {
		if !acts() {
			return 0
		}
		return float64(replacements.Waiting())
	})
}
