package machine

import (
	"slices"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machine/lifecycle"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/telemetry"
)

// collectors return the metrics of Machines. Those of the machines that exist are calculated at
// each scrape from the machines in this replica's slots, so that one that was deleted, or moved to
// another replica, has none. While acts returns false this replica may have lost its slots without
// a notice, and reports none of them. byMachine has the names of the metrics that have a series for
// each machine and are emitted all the same.
func (l *lifeMetrics) collectors(acts func() bool, byMachine []string) []prometheus.Collector {
	return []prometheus.Collector{
		l.steps, l.failures, l.byNamespace.steps, l.byNamespace.deletions,
		telemetry.NewGauges(acts, l.view.Deployments.All, l.last.metrics()...),
		telemetry.NewGauges(acts, l.view.Machines.All, telemetry.Allowed(byMachine, l.gauges())...),
	}
}

func (l *lifeMetrics) gauges() []telemetry.Gauge[*v1alpha1.Machine] {
	type machine = *v1alpha1.Machine
	return []telemetry.Gauge[machine]{
		telemetry.OfAll("mcm_machine_items_total", "Machines.", func(all []machine) float64 { return float64(len(all)) }),
		telemetry.OfGroups("mcf_machines", "Machines by provider and phase.", l.reportMachines, "provider", "phase"),
		telemetry.OfGroups("mcf_oldest_machine_seconds",
			"For how long the machine that has been in a phase for longest has been in it; 0 when none is.",
			l.reportOldest, "provider", "phase"),
		telemetry.OfEach(telemetry.MachineInfo, "A Machine, when it was created, its VM, its class, and its Node.", reportInfo,
			"createdAt", "spec_provider_id", "spec_class_api_group", "spec_class_kind", "spec_class_name", "node_name"),
		telemetry.OfEach(telemetry.MachinePhase,
			"The phase: -4 is Terminating, -3 Failed, -2 CrashLoopBackOff, -1 Unknown, 1 Running, and 0 any other.",
			func(m machine, report telemetry.Measure) { report(phaseNumber(m.Status.CurrentStatus.Phase)) }),
		telemetry.OfEach(telemetry.MachineCondition, "A condition of the Node: 1 is True, 0 False, 2 Unknown.", reportConditions, "condition"),
	}
}

func reportInfo(m *v1alpha1.Machine, report telemetry.Measure) {
	class := m.Spec.Class
	report(1, strconv.FormatInt(m.CreationTimestamp.Unix(), 10), m.Spec.ProviderID, class.APIGroup, class.Kind,
		class.Name, lifecycle.NodeName(m))
}

func reportConditions(m *v1alpha1.Machine, report telemetry.Measure) {
	for _, c := range m.Status.Conditions {
		telemetry.EmitCondition(report, string(c.Type), c.Status)
	}
}

// phaseNumber returns the number by which Machine Controller Manager reports a phase.
func phaseNumber(phase v1alpha1.MachinePhase) float64 {
	switch phase { //nolint:exhaustive // all others are 0
	case v1alpha1.MachineTerminating:
		return -4
	case v1alpha1.MachineFailed:
		return -3
	case v1alpha1.MachineCrashLoopBackOff:
		return -2
	case v1alpha1.MachineUnknown:
		return -1
	case v1alpha1.MachineRunning:
		return 1
	}
	return 0
}

// noPhase is the label of machines whose VM has not been created.
const noPhase = "none"

// phaseLabels returns all labels of phases.
func phaseLabels() []string {
	return []string{
		noPhase, string(v1alpha1.MachinePending), string(v1alpha1.MachineAvailable), string(v1alpha1.MachineRunning),
		string(v1alpha1.MachineUnknown), string(v1alpha1.MachineFailed), string(v1alpha1.MachineCrashLoopBackOff),
		string(v1alpha1.MachineTerminating), string(v1alpha1.MachineInPlaceUpdating), string(v1alpha1.MachineInPlaceUpdateSuccessful),
		string(v1alpha1.MachineInPlaceUpdateFailed), other,
	}
}

// group is the machines of a provider in a phase.
type group struct{ provider, phase string }

// groupOf returns the group of a machine.
func (l *lifeMetrics) groupOf(m *v1alpha1.Machine) group {
	class, _ := l.view.Classes.Get(classKey(m))
	of := group{l.provider(class), string(m.Status.CurrentStatus.Phase)}
	switch {
	case of.phase == "":
		of.phase = noPhase
	case !slices.Contains(l.phases, of.phase):
		of.phase = other
	}
	return of
}

// reportGroups reports a number of each group, also of those without machines: a series that
// appears and vanishes has no rate.
func (l *lifeMetrics) reportGroups(all []*v1alpha1.Machine, report telemetry.Measure, add func(sum float64, m *v1alpha1.Machine) float64) {
	sums := map[group]float64{}
	for _, m := range all {
		of := l.groupOf(m)
		sums[of] = add(sums[of], m)
	}
	for _, provider := range append(slices.Clone(l.providers), other) {
		for _, phase := range l.phases {
			report(sums[group{provider, phase}], provider, phase)
		}
	}
}

func (l *lifeMetrics) reportMachines(all []*v1alpha1.Machine, report telemetry.Measure) {
	l.reportGroups(all, report, func(sum float64, _ *v1alpha1.Machine) float64 { return sum + 1 })
}

func (l *lifeMetrics) reportOldest(all []*v1alpha1.Machine, report telemetry.Measure) {
	now := l.clock.Now()
	l.reportGroups(all, report, func(oldest float64, m *v1alpha1.Machine) float64 {
		return max(oldest, now.Sub(phaseSince(m)).Seconds())
	})
}

// phaseSince returns when a machine has entered its phase: never before its creation, regardless of
// what a client has written.
func phaseSince(m *v1alpha1.Machine) time.Time {
	if since := m.Status.CurrentStatus.LastUpdateTime.Time; since.After(m.CreationTimestamp.Time) {
		return since
	}
	return m.CreationTimestamp.Time
}
