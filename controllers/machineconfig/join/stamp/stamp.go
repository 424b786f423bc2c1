package stamp

import (
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/fleet/v1alpha1"
	machinev1alpha1 "github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
)

// Hold is why the template of a MachineDeployment is not changed.
type Hold string

// Reasons.
const (
	// HoldOtherRollout means that daemons are assigned configurations by the pool, or that it refers
	// to no MachineDeployment.
	HoldOtherRollout Hold = "OtherRollout"
	// HoldPoolDeleted and HoldPaused are about the pool.
	HoldPoolDeleted Hold = "PoolDeleted"
	HoldPaused      Hold = "PoolPaused"
	// HoldDegraded means that the pool's MachineConfigs cannot be rendered. The target is that of
	// before.
	HoldDegraded Hold = "RenderDegraded"
	// HoldNoTarget means that nothing was rendered for the pool.
	HoldNoTarget Hold = "NoTarget"
	// HoldOtherPool means that an older pool refers to the MachineDeployment.
	HoldOtherPool Hold = "OtherPool"
	// HoldNoDeployment means that this replica does not know the MachineDeployment, and HoldDeleted
	// that it is being deleted.
	HoldNoDeployment Hold = "NoMachineDeployment"
	HoldDeleted      Hold = "MachineDeploymentDeleted"
	// HoldStamped means that the template names the target.
	HoldStamped Hold = "Stamped"
	// HoldReadLive means that the template has to be changed, if the pool as the API server has it
	// says so, too: an older target would replace machines twice.
	HoldReadLive Hold = "ReadLive"
)

// World is the input of Stamp.
type World struct {
	Pool *v1alpha1.MachineConfigPool
	// Live means that Pool was read from the API server for this decision, and not from a cache.
	Live bool
	// Pools are all pools.
	Pools []*v1alpha1.MachineConfigPool
	// Deployment is the one that the pool refers to; nil when it is not known.
	Deployment *machinev1alpha1.MachineDeployment
}

// Stamp returns the name that the template of the MachineDeployment has to have, or why it stays as
// it is.
func Stamp(w World) (config string, hold Hold) {
	status := &w.Pool.Status
	switch {
	case !IsByDeployment(w.Pool):
		return "", HoldOtherRollout
	case w.Pool.DeletionTimestamp != nil:
		return "", HoldPoolDeleted
	case w.Pool.Spec.Paused:
		return "", HoldPaused
	case meta.IsStatusConditionTrue(status.Conditions, v1alpha1.PoolRenderDegraded):
		return "", HoldDegraded
	case !isOf(status.CurrentMachineConfig, w.Pool):
		return "", HoldNoTarget
	case !HasMachines(w.Pools, w.Pool):
		return "", HoldOtherPool
	case w.Deployment == nil:
		return "", HoldNoDeployment
	case w.Deployment.DeletionTimestamp != nil:
		return "", HoldDeleted
	case w.Deployment.Spec.Template.Annotations[v1alpha1.AnnotationMachineConfig] == status.CurrentMachineConfig:
		return "", HoldStamped
	case !w.Live:
		return "", HoldReadLive
	}
	return status.CurrentMachineConfig, ""
}

// Stamped returns the MachineDeployment with a template that names the configuration.
func Stamped(d *machinev1alpha1.MachineDeployment, config string) *machinev1alpha1.MachineDeployment {
	d = d.DeepCopy()
	metav1.SetMetaDataAnnotation(&d.Spec.Template.ObjectMeta, v1alpha1.AnnotationMachineConfig, config)
	return d
}
