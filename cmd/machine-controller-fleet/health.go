package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/clock"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/brake"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/replacement"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/flags"
	"github.com/machine-controller-fleet/machine-controller-fleet/shard/label"
)

// healthOptions are the flags of telling healthy machines from others, and of when those are replaced and when not.
type healthOptions struct {
	timeout        time.Duration
	nodeConditions []string
	replacements   string
	thresholds     brake.Thresholds
}

func (o *healthOptions) declare(g *flags.Group) {
	t := brake.DefaultThresholds()
	g.Duration(&o.timeout, "machine-health-timeout", 10*time.Minute, "how long a machine may be unhealthy before it has failed and is replaced; 0 means at once", flags.OrZero)
	g.List(&o.nodeConditions, "node-conditions", []string{"KernelDeadlock", "ReadonlyFilesystem", "DiskPressure", "NetworkUnavailable"}, "types of Node conditions, separated by commas, that must be False on a healthy Node")
	g.String(&o.replacements, "machine-max-replacements", "1", "how many machines of a MachineDeployment may be on their way out or in for an unhealthy one to be replaced: a number, or a percentage of its replicas, rounded down and at least 1")
	g.Int(&o.thresholds.NotReady, "replacement-halt-not-ready", t.NotReady, "how many machines of a zone, or of a whole target cluster, have to be not Ready, and be more than --replacement-halt-percent of them, to halt the replacement of unhealthy machines there")
	g.Int(&o.thresholds.Percent, "replacement-halt-percent", t.Percent, "see --replacement-halt-not-ready; with 100 replacement is never halted")
	g.Int(&o.thresholds.ResumePercent, "replacement-resume-percent", t.ResumePercent, "unhealthy machines are replaced again where less than this percentage has not been Ready for --replacement-resume-after")
	g.Duration(&o.thresholds.ResumeAfter, "replacement-resume-after", t.ResumeAfter, "see --replacement-resume-percent", flags.OrZero)
}

func (o *healthOptions) validate() error {
	var errs []error
	limit := intstr.Parse(o.replacements)
	if n, err := intstr.GetScaledValueFromIntOrPercent(&limit, 100, false); err != nil || n < 1 || limit.Type == intstr.String && n > 100 {
		errs = append(errs, fmt.Errorf("--machine-max-replacements: expected a number of at least 1, or 1%% to 100%%, got %q", o.replacements))
	}
	if err := o.thresholds.Validate(); err != nil {
		errs = append(errs, fmt.Errorf("--replacement-halt-…, --replacement-resume-…: %w", err))
	}
	return errors.Join(errs...)
}

// newReplacements wires what lets unhealthy machines be replaced.
func newReplacements(o options, f *fleet) (*replacement.Controller, error) {
	var c *replacement.Controller
	c, err := replacement.New(replacement.Config{
		Machines: f.machines.MachineV1alpha1(), View: f.view, Targets: f.targets,
		DeploymentEvents: f.recorder(v1alpha1.EventSourceMachineDeployment), SetEvents: f.recorder(v1alpha1.EventSourceMachineSet),
		Limits: brake.Limits{
			HealthTimeout: o.health.timeout, Replacements: intstr.Parse(o.health.replacements), Thresholds: o.health.thresholds,
		},
		Replica: o.replicaName, Holds: f.session.fence.Holds,
		SlotOf: func(labels map[string]string) (int, bool) {
			return label.Read(labels[v1alpha1.LabelSlot], f.slots.spread.Count())
		},
		DeploymentGate: f.slots.gate(label.Deployment, func(key types.NamespacedName) { c.EnqueueDeployment(key) }),
		SetGate:        f.slots.gate(label.Set, func(key types.NamespacedName) { c.EnqueueSet(key) }),
		Clock:          clock.RealClock{}, Workers: o.concurrentSyncs, Metrics: f.metrics, Tracer: f.tracer,
	})
	return c, err
}

// countHalts registers a metric of where replacement is halted.
func countHalts(registerer prometheus.Registerer, halts *replacement.Halts) {
	registerer.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "fleet_replacement_halts",
		Help: "Zones and target clusters, in all namespaces or in one, in which this replica replaces no unhealthy machine, because too many are not Ready.",
	}, func() float64 { return float64(len(halts.Standing().Halted)) }))
}
