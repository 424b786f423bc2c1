package record

import (
	"context"
	"errors"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/chaos/check"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/harness"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/simulated"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/simulated/cloudapi"
)

// Converged compares MachineDeployments, machines and VMs. Those of forgotten machines, by their
// UIDs, have to exist, too.
func Converged(ctx context.Context, lab *harness.Lab, namespace string, forgotten ...string) error {
	deployments, err := lab.Machines.MachineV1alpha1().MachineDeployments(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	machines, err := lab.Machines.MachineV1alpha1().Machines(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	vms, err := lab.Cloud.VMs(ctx, namespace)
	if err != nil {
		return err
	}
	return errors.Join(check.Converged(deployments.Items, machines.Items), oneVMEach(machines.Items, vms, forgotten))
}

func oneVMEach(machines []v1alpha1.Machine, vms []cloudapi.Instance, forgotten []string) error {
	byMachine := map[string][]string{}
	for _, vm := range vms {
		uid := vm.Tags[simulated.TagMachineUID]
		byMachine[uid] = append(byMachine[uid], vm.ProviderID)
	}
	for _, m := range machines {
		if m.Status.CurrentStatus.Phase != v1alpha1.MachineRunning || m.DeletionTimestamp != nil {
			return fmt.Errorf("machine %s: %s, deleted: %t: %s",
				m.Name, m.Status.CurrentStatus.Phase, m.DeletionTimestamp != nil, m.Status.LastOperation.Description)
		}
		if ids := byMachine[string(m.UID)]; len(ids) != 1 || ids[0] != m.Spec.ProviderID {
			return fmt.Errorf("machine %s has provider ID %s and VMs %v", m.Name, m.Spec.ProviderID, ids)
		}
		delete(byMachine, string(m.UID))
	}
	for _, uid := range forgotten {
		if ids := byMachine[uid]; len(ids) != 1 {
			return fmt.Errorf("the machine with UID %s, which is forgotten, has VMs %v", uid, ids)
		}
		delete(byMachine, uid)
	}
	if len(byMachine) > 0 {
		return fmt.Errorf("VMs without a machine, by its UID: %v", byMachine)
	}
	return nil
}
