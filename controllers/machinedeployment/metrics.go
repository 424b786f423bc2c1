package machinedeployment

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machinedeployment/rollout"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/telemetry"
)

// Collectors return the metrics of MachineDeployments that dashboards know from Machine Controller
// Manager. They are calculated at each scrape from the deployments in this replica's slots, so that
// one that was deleted, or moved to another replica, has none. While acts returns false this
// replica may have lost its slots without a notice, and reports none. byMachine has the names of
// the metrics that have a series for each machine and are emitted all the same.
func (c *Controller) Collectors(acts func() bool, byMachine []string) []prometheus.Collector {
	return []prometheus.Collector{telemetry.NewGauges(acts, c.cfg.View.Deployments.All, telemetry.Allowed(byMachine, gauges())...)}
}

func gauges() []telemetry.Gauge[*v1alpha1.MachineDeployment] {
	type deployment = *v1alpha1.MachineDeployment
	return append([]telemetry.Gauge[deployment]{
		telemetry.OfAll("mcm_machine_deployment_items_total", "MachineDeployments.", func(all []deployment) float64 { return float64(len(all)) }),
		telemetry.OfEach("mcm_machine_deployment_info", "A MachineDeployment, when it was created, and its strategy.", reportInfo,
			"createdAt", "spec_strategy_type"),
		telemetry.OfEach("mcm_machine_deployment_status_condition", "A condition: 1 is True, 0 False, 2 Unknown.", reportConditions, "condition"),
		telemetry.Number("mcm_machine_deployment_status_available_replicas", "Machines that are available.",
			func(d deployment) int32 { return d.Status.AvailableReplicas }),
		telemetry.Number("mcm_machine_deployment_status_unavailable_replicas",
			"Machines that its MachineSets should have and that are not available.",
			func(d deployment) int32 { return d.Status.UnavailableReplicas }),
		telemetry.Number("mcm_machine_deployment_status_ready_replicas", "Machines that run.",
			func(d deployment) int32 { return d.Status.ReadyReplicas }),
		telemetry.Number("mcm_machine_deployment_status_updated_replicas", "Machines of the current template.",
			func(d deployment) int32 { return d.Status.UpdatedReplicas }),
		telemetry.Number("mcm_machine_deployment_status_replicas", "Machines that exist.",
			func(d deployment) int32 { return d.Status.Replicas }),
		optional("mcm_machine_deployment_status_collision_count", "Number of times the name of a new MachineSet was taken.",
			func(d deployment) *int32 { return d.Status.CollisionCount }),
		telemetry.OfEach(telemetry.DeploymentFailedMachines, "A machine whose last operation failed.", reportFailed,
			telemetry.FailedMachineLabels()...),
	}, gaugesOfSpec()...)
}

func gaugesOfSpec() []telemetry.Gauge[*v1alpha1.MachineDeployment] {
	type deployment = *v1alpha1.MachineDeployment
	const prefix = "mcm_machine_deployment_info_spec_"
	return []telemetry.Gauge[deployment]{
		telemetry.OfEach(prefix+"paused", "1 while it is paused.", func(d deployment, report telemetry.Measure) {
			paused := 0.0
			if d.Spec.Paused {
				paused = 1
			}
			report(paused)
		}),
		telemetry.Number(prefix+"replicas", "Machines that are wanted.", func(d deployment) int32 { return d.Spec.Replicas }),
		telemetry.Number(prefix+"min_ready_seconds", "Seconds for which a machine has to be ready, where that counts.",
			func(d deployment) int32 { return d.Spec.MinReadySeconds }),
		ofRollingUpdate(prefix+"rolling_update_max_surge", "Machines that a rolling update may have beyond the replicas.",
			func(surge, _ int32) int32 { return surge }),
		ofRollingUpdate(prefix+"rolling_update_max_unavailable", "Replicas that a rolling update may have missing.",
			func(_, unavailable int32) int32 { return unavailable }),
		optional(prefix+"revision_history_limit", "Old MachineSets that are kept.",
			func(d deployment) *int32 { return d.Spec.RevisionHistoryLimit }),
		optional(prefix+"progress_deadline_seconds", "Seconds for which a rollout may make no progress.",
			func(d deployment) *int32 { return d.Spec.ProgressDeadlineSeconds }),
		telemetry.OfEach(prefix+"rollback_to_revision", "Revision to go back to.", func(d deployment, report telemetry.Measure) {
			if d.Spec.RollbackTo != nil {
				report(float64(d.Spec.RollbackTo.Revision))
			}
		}),
	}
}

// optional returns a gauge that a deployment has only if its field is set.
func optional(name, help string, of func(d *v1alpha1.MachineDeployment) *int32) telemetry.Gauge[*v1alpha1.MachineDeployment] {
	return telemetry.OfEach(name, help, func(d *v1alpha1.MachineDeployment, report telemetry.Measure) {
		if n := of(d); n != nil {
			report(float64(*n))
		}
	})
}

// ofRollingUpdate returns a gauge of a limit of rolling updates, in machines.
func ofRollingUpdate(name, help string, of func(surge, unavailable int32) int32) telemetry.Gauge[*v1alpha1.MachineDeployment] {
	return telemetry.OfEach(name, help, func(d *v1alpha1.MachineDeployment, report telemetry.Measure) {
		if surge, unavailable, ok := rollout.Limits(d); ok {
			report(float64(of(surge, unavailable)))
		}
	})
}

func reportInfo(d *v1alpha1.MachineDeployment, report telemetry.Measure) {
	report(1, strconv.FormatInt(d.CreationTimestamp.Unix(), 10), string(d.Spec.Strategy.Type))
}

func reportConditions(d *v1alpha1.MachineDeployment, report telemetry.Measure) {
	for _, c := range d.Status.Conditions {
		telemetry.EmitCondition(report, string(c.Type), c.Status)
	}
}

func reportFailed(d *v1alpha1.MachineDeployment, report telemetry.Measure) {
	for _, m := range d.Status.FailedMachines {
		if m != nil {
			telemetry.EmitFailed(report, m)
		}
	}
}
