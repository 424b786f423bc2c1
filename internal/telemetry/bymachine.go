package telemetry

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Names of the metrics that have a series for each machine. All others have as many as there are
// MachineSets and MachineDeployments, or a fixed number.
const (
	MachineInfo              = "mcm_machine_info"
	MachinePhase             = "mcm_machine_current_status_phase"
	MachineCondition         = "mcm_machine_status_condition"
	SetFailedMachines        = "mcm_machine_set_failed_machines"
	DeploymentFailedMachines = "mcm_machine_deployment_failed_machines"
)

// SeriesByMachine returns the names of the metrics that have a series for each machine, or for each
// that has failed.
func SeriesByMachine() []string {
	return []string{MachineInfo, MachinePhase, MachineCondition, SetFailedMachines, DeploymentFailedMachines}
}

// SeriesByFailedMachine returns those of SeriesByMachine that only have series for machines that
// have failed.
func SeriesByFailedMachine() []string { return []string{SetFailedMachines, DeploymentFailedMachines} }

// Allowed returns the gauges without those that have a series for each machine, unless they are
// listed by their names.
func Allowed[T metav1.Object](byMachine []string, gauges []Gauge[T]) []Gauge[T] {
	return slices.DeleteFunc(gauges, func(g Gauge[T]) bool {
		return slices.Contains(SeriesByMachine(), g.name) && !slices.Contains(byMachine, g.name)
	})
}
