package machine

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/utils/clock"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machine/lifecycle"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/objectcache"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/ownerref"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/telemetry"
)

// other is the label of what is not one of the expected values. Any client may write any provider
// and any phase.
const other = "other"

// lifeMetrics has the durations of steps in the lives of machines, and counts those that have
// failed.
type lifeMetrics struct {
	providers   []string // with a driver
	phases      []string // labels
	steps       *prometheus.HistogramVec
	failures    *prometheus.CounterVec
	last        *lastMachines
	byNamespace *namespaceMetrics
	clock       clock.PassiveClock
	view        *objectcache.View
	memory      *machineMemory
}

// newLifeMetrics returns the metrics, with a series for each step and each cause: the rate of one
// that appears later would miss its first value.
func newLifeMetrics(cfg Config, memory *machineMemory) *lifeMetrics {
	providers := cfg.Drivers.Providers()
	l := &lifeMetrics{
		providers: providers, phases: phaseLabels(), last: newLastMachines(cfg.View), byNamespace: newNamespaceMetrics(),
		clock: cfg.Clock, view: cfg.View, memory: memory,
		steps: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "mcf_machine_step_seconds",
			Help:    "How long the steps in the lives of machines took, each observed once for a machine, when it has ended.",
			Buckets: []float64{0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 30, 60, 120, 180, 300, 600, 900, 1200, 1800, 3600, 7200},
		}, []string{"provider", "step"}),
		failures: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "mcf_machine_failures_total",
			Help: "Machines that have failed: their VM could not be created, their Node has not joined, or it was not healthy for too long.",
		}, []string{"provider", "cause"}),
	}
	for _, provider := range providers {
		for _, step := range lifecycle.Steps() {
			l.steps.WithLabelValues(provider, string(step))
		}
		for _, cause := range []lifecycle.Cause{lifecycle.CauseCreate, lifecycle.CauseJoin, lifecycle.CauseHealth} {
			l.failures.WithLabelValues(provider, string(cause))
		}
	}
	return l
}

// provider returns the label for the provider of a class, which may be nil.
func (l *lifeMetrics) provider(class *v1alpha1.MachineClass) string {
	if class == nil || !slices.Contains(l.providers, class.Provider) {
		return other
	}
	return class.Provider
}

// timing contains what this process has measured of a machine and no object has the time of.
type timing struct {
	hasCreated                 bool          // createCall is known
	createCall, initializeCall time.Duration // of the driver, those that succeeded last
	beforeVM                   bool          // this process knows that no other one has requested the deletion of the VM
	vmRequested, vmGone        time.Time     // when the deletion of the VM was requested first, and when the VM was gone
}

// tracedStage returns a stage of a machine as traces have it.
func tracedStage(m *v1alpha1.Machine, stage lifecycle.Stage, since time.Time) telemetry.Stage {
	is := telemetry.Stage{Name: string(stage), ID: string(m.UID)}
	if stage == lifecycle.StageUpdate {
		is.ID += fmt.Sprintf("/%d", since.Unix())
	}
	if stage == "" {
		return telemetry.Stage{}
	}
	return is
}

// written observes the steps that ended with a write of a machine. before and measured are what was
// known before the write.
func (l *lifeMetrics) written(ctx context.Context, p *pass, before *v1alpha1.Machine, measured timing, events []lifecycle.Event) {
	after, now := p.world.Machine, l.clock.Now()
	if why, began := lifecycle.DeletionBegan(before, after); began {
		l.byNamespace.deletionBegan(before.Namespace, why)
	}
	if lifecycle.BeforeVM(before, after, events) {
		l.memory.measure(p, func(t *timing) { t.beforeVM = true })
	}
	if stage, since, failure := lifecycle.StageEnded(before, after, events); stage != "" {
		root := string(ownerref.RootUIDOf(l.view, before))
		telemetry.EndStage(ctx, tracedStage(before, stage, since), root, before, telemetry.Interval{From: since, To: now}, failure)
	}
	steps := lifecycle.StepsEnded(before, events, now)
	cause, failed := lifecycle.Failed(before, after)
	if len(steps) == 0 && !failed {
		return
	}
	class := p.world.Class.Class
	provider := l.provider(class)
	for _, took := range append(steps, measured.with(steps, before.Spec.ProviderID != "")...) {
		telemetry.Observe(ctx, l.steps.WithLabelValues(provider, string(took.Step)), took.Duration)
	}
	l.byNamespace.ended(ctx, before.Namespace, steps)
	if failed {
		l.failures.WithLabelValues(provider, string(cause)).Inc()
	}
	l.last.note(before, class, measured, steps, cause)
}

// with returns the steps that this process has measured, and that ended before those. A machine
// that had no VM has none of its deletion.
func (t timing) with(ended []lifecycle.Took, hadVM bool) (measured []lifecycle.Took) {
	for _, took := range ended {
		switch {
		case took.Step == lifecycle.StepCreate && t.hasCreated:
			measured = append(measured, lifecycle.Took{Step: lifecycle.StepCreateCall, Duration: t.createCall})
		case took.Step == lifecycle.StepDelete && hadVM && t.beforeVM && !t.vmGone.IsZero():
			measured = append(measured, lifecycle.Took{Step: lifecycle.StepDeleteVM, Duration: t.vmGone.Sub(t.vmRequested)})
		}
	}
	return measured
}
