package stamp

import (
	"cmp"
	"fmt"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/fleet/v1alpha1"
	machinev1alpha1 "github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
)

// First returns the configuration that a new machine of a root boots with, or why there is none, as
// a sentence for the machine's status. While the MachineDeployment rolls out, it is that of the
// machine's template, so that the machine is what its MachineSet says. Else the pool brings the
// Node to its target, and the machine boots with that, once a Node has shown that it works; before,
// with the last target that all Nodes had.
func First(m *machinev1alpha1.Machine, root v1alpha1.MachineReference, pools []*v1alpha1.MachineConfigPool) (config, problem string) {
	referring := Referring(pools, root)
	if len(referring) == 0 {
		return "", fmt.Sprintf("no MachineConfigPool refers to %s %s/%s; create one, or remove the placeholder",
			root.Kind, root.Namespace, root.Name)
	}
	pool := referring[0]
	stamped := m.Annotations[v1alpha1.AnnotationMachineConfig]
	if IsByDeployment(pool) && stamped != "" {
		if !isOf(stamped, pool) {
			return "", fmt.Sprintf("the template names a configuration that is none of pool %s; remove the annotation %s from the template of %s %s",
				pool.Name, v1alpha1.AnnotationMachineConfig, root.Kind, root.Name)
		}
		return stamped, ""
	}
	config = pool.Status.CurrentMachineConfig
	if pool.Status.UpdatedMachineCount == 0 {
		config = cmp.Or(pool.Status.CompletedMachineConfig, config)
	}
	if config == "" {
		return "", fmt.Sprintf("nothing was rendered for MachineConfigPool %s; its condition %s has the cause",
			pool.Name, v1alpha1.PoolRenderDegraded)
	}
	return config, ""
}
