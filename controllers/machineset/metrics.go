package machineset

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/telemetry"
)

// Collectors return the metrics of MachineSets that dashboards know from Machine Controller
// Manager. They are calculated at each scrape from the sets in this replica's slots, so that one
// that was deleted, or moved to another replica, has none. While acts returns false this replica
// may have lost its slots without a notice, and reports none. byMachine has the names of the
// metrics that have a series for each machine and are emitted all the same.
func (c *Controller) Collectors(acts func() bool, byMachine []string) []prometheus.Collector {
	return []prometheus.Collector{c.stale, telemetry.NewGauges(acts, c.cfg.View.Sets.All, telemetry.Allowed(byMachine, gauges())...)}
}

// newStale returns the counter of machines that were replaced for their health.
func newStale() prometheus.Counter {
	return prometheus.NewCounter(prometheus.CounterOpts{
		Name: "mcm_machine_stale_machines_total", Help: "Failed machines that were deleted because their health had timed out.",
	})
}

// isStale reports whether the machine has failed for its health.
func isStale(m *v1alpha1.Machine) bool {
	return m.Status.CurrentStatus.Phase == v1alpha1.MachineFailed && m.Status.LastOperation.Type == v1alpha1.MachineOperationHealthCheck
}

func gauges() []telemetry.Gauge[*v1alpha1.MachineSet] {
	type set = *v1alpha1.MachineSet
	return []telemetry.Gauge[set]{
		telemetry.OfAll("mcm_machine_set_items_total", "MachineSets.", func(sets []set) float64 { return float64(len(sets)) }),
		telemetry.OfEach("mcm_machine_set_info", "A MachineSet, when it was created, and the class of its template.", reportInfo,
			"createdAt", "spec_machine_class_api_group", "spec_machine_class_kind", "spec_machine_class_name"),
		telemetry.Number("mcm_machine_set_info_spec_replicas", "Machines that are wanted.",
			func(s set) int32 { return s.Spec.Replicas }),
		telemetry.Number("mcm_machine_set_info_spec_min_ready_seconds", "Seconds for which a machine has to be ready, where that counts.",
			func(s set) int32 { return s.Spec.MinReadySeconds }),
		telemetry.OfEach("mcm_machine_set_status_condition", "A condition: 1 is True, 0 False, 2 Unknown.", reportConditions, "condition"),
		telemetry.Number("mcm_machine_set_status_available_replicas", "Machines that are available.",
			func(s set) int32 { return s.Status.AvailableReplicas }),
		telemetry.Number("mcm_machine_set_status_fully_labelled_replicas", "Machines with all labels of the template.",
			func(s set) int32 { return s.Status.FullyLabeledReplicas }),
		telemetry.Number("mcm_machine_set_status_ready_replicas", "Machines that run.",
			func(s set) int32 { return s.Status.ReadyReplicas }),
		telemetry.Number("mcm_machine_set_status_replicas", "Machines there are.",
			func(s set) int32 { return s.Status.Replicas }),
		telemetry.OfEach(telemetry.SetFailedMachines, "A machine whose last operation failed.", reportFailed, telemetry.FailedMachineLabels()...),
	}
}

func reportInfo(set *v1alpha1.MachineSet, report telemetry.Measure) {
	class := set.Spec.Template.Spec.Class
	report(1, strconv.FormatInt(set.CreationTimestamp.Unix(), 10), class.APIGroup, class.Kind, class.Name)
}

func reportConditions(set *v1alpha1.MachineSet, report telemetry.Measure) {
	for _, c := range set.Status.Conditions {
		telemetry.EmitCondition(report, string(c.Type), c.Status)
	}
}

func reportFailed(set *v1alpha1.MachineSet, report telemetry.Measure) {
	if set.Status.FailedMachines == nil {
		return
	}
	for i := range *set.Status.FailedMachines {
		telemetry.EmitFailed(report, &(*set.Status.FailedMachines)[i])
	}
}
