package check

import (
	"errors"
	"fmt"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
)

// Converged returns an error that names each MachineDeployment without its desired machines, all
// running, or without a status of its latest generation that reports these. Machines are assigned
// by the label name, which has the MachineDeployment's name.
func Converged(deployments []v1alpha1.MachineDeployment, machines []v1alpha1.Machine) error {
	all, running := map[string]int{}, map[string]int{}
	for _, m := range machines {
		name := m.Labels[v1alpha1.LabelName]
		all[name]++
		if m.Status.CurrentStatus.Phase == v1alpha1.MachineRunning && m.DeletionTimestamp == nil {
			running[name]++
		}
	}
	var errs []error
	for _, d := range deployments {
		desired := int(d.Spec.Replicas)
		if all[d.Name] != desired || running[d.Name] != desired || d.DeletionTimestamp != nil {
			errs = append(errs, fmt.Errorf("MachineDeployment %s should have %d machines and has %d, of which %d run (deleted: %t)",
				d.Name, desired, all[d.Name], running[d.Name], d.DeletionTimestamp != nil))
		}
		s := d.Status
		if s.ObservedGeneration != d.Generation || s.Replicas != d.Spec.Replicas || s.ReadyReplicas != d.Spec.Replicas {
			errs = append(errs,
				fmt.Errorf("MachineDeployment %s should have %d machines in generation %d, and reports %d, %d of them ready, in generation %d",
					d.Name, desired, d.Generation, s.Replicas, s.ReadyReplicas, s.ObservedGeneration))
		}
		delete(all, d.Name)
	}
	for name, n := range all {
		errs = append(errs, fmt.Errorf("there are %d machines of MachineDeployment %q, which does not exist", n, name))
	}
	return errors.Join(errs...)
}
