package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"

	machinev1alpha1 "github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
)

// Labels, annotations and finalizers on the kinds of this group, and on templates of machines.
const (
	// LabelPool is the pool that a RenderedMachineConfig was rendered for; on a Node it is the pool
	// that has assigned it a configuration last. Nothing is decided on that of a Node: its kubelet can
	// change it.
	//
	// On: RenderedMachineConfigs, Nodes. By: fleet. Value: name of a MachineConfigPool. See:
	// operations/machine-config.md#which-pool-a-node-belongs-to.
	LabelPool = machinev1alpha1.FleetDomain + "pool"
	// LabelRole is the role that the MachineConfig was created for. Pools select it.
	//
	// On: MachineConfigs. By: fleet, user. Value: role. See:
	// operations/machine-config.md#write-templates.
	LabelRole = machinev1alpha1.FleetDomain + "role"
	// AnnotationGeneratedBy names the controller that keeps the MachineConfig as it is. Without it the
	// MachineConfig is a user's.
	//
	// On: MachineConfigs. By: fleet. Value: `TemplateController`, `KubeletConfigController`. See:
	// operations/machine-config.md#write-templates.
	AnnotationGeneratedBy = machinev1alpha1.FleetDomain + "generated-by"
	// AnnotationMachineConfig is machinev1alpha1.AnnotationMachineConfig.
	AnnotationMachineConfig = machinev1alpha1.AnnotationMachineConfig
	// AnnotationDrainSince is since when the Node is being drained for a configuration. It is removed
	// when the drain has ended.
	//
	// On: Nodes. By: fleet. Value: RFC 3339. See: operations/machine-config.md#drain.
	AnnotationDrainSince = machinev1alpha1.FleetDomain + "machine-config-drain-since"
	// AnnotationCordonedBy is the pool for whose configuration the Node was cordoned, written together
	// with the cordon. A Node that was cordoned before does not get it, and stays cordoned after the
	// update.
	//
	// On: Nodes. By: fleet. Value: name of a MachineConfigPool. See:
	// operations/machine-config.md#a-node-stays-cordoned.
	AnnotationCordonedBy = machinev1alpha1.FleetDomain + "machine-config-cordoned-by"
	// AnnotationNamespace is the namespace of the control cluster for which the object is served,
	// where each namespace has its own target cluster. The first namespace that finds the object
	// without it adds its own; of a MachineConfigPool spec.machineRef decides instead, if there is
	// one.
	//
	// On: MachineConfigPools, KubeletConfigs, the ControllerConfig. By: fleet, user. Value: name of a
	// namespace. See: operations/landscapes.md#machine-configuration.
	AnnotationNamespace = machinev1alpha1.FleetDomain + "namespace"
	// FinalizerInUse keeps a RenderedMachineConfig while a pool, a Node or a Machine names it, and a
	// pool while a Node names one of its RenderedMachineConfigs.
	//
	// On: RenderedMachineConfigs, MachineConfigPools. By: fleet. See:
	// operations/machine-config.md#renderedmachineconfigs-that-are-deleted.
	FinalizerInUse = machinev1alpha1.FleetDomain + "machine-config-in-use"
)

// Values of AnnotationGeneratedBy.
const (
	// GeneratedFromTemplate means that it was rendered from a template.
	GeneratedFromTemplate = "TemplateController"
	// GeneratedFromKubeletConfigs means that it was folded of KubeletConfigs.
	GeneratedFromKubeletConfigs = "KubeletConfigController"
)

// TaintUpdateInProgress is on Nodes of a pool that have not been assigned its target yet: pods
// prefer Nodes that will not be drained soon.
//
// On: Nodes. By: fleet. Value: effect PreferNoSchedule. See: operations/machine-config.md#roll-out.
const TaintUpdateInProgress = "UpdateInProgress"

// UpdateInProgress returns the taint.
func UpdateInProgress() corev1.Taint {
	return corev1.Taint{Key: TaintUpdateInProgress, Effect: corev1.TaintEffectPreferNoSchedule}
}

// Condition types of a MachineConfigPool.
const (
	// PoolUpdated is True while all Nodes are on the target, ready, and available to pods.
	PoolUpdated = "Updated"
	// PoolUpdating is True while Nodes are being brought to the target.
	PoolUpdating = "Updating"
	// PoolNodeDegraded is True while the daemon of a Node reports a failure.
	PoolNodeDegraded = "NodeDegraded"
	// PoolRenderDegraded is True while no target can be rendered. The RenderController writes it.
	PoolRenderDegraded = "RenderDegraded"
	// PoolDegraded is True while one of the two above is.
	PoolDegraded = "Degraded"
	// PoolNodeConflict is True while several pools of the same priority select a Node.
	PoolNodeConflict = "NodeConflict"
)

// Condition types of the ControllerConfig.
const (
	// TemplatesRunning is True while templates of a new generation are rendered.
	TemplatesRunning = "TemplateControllerRunning"
	// TemplatesCompleted is True when all are rendered.
	TemplatesCompleted = "TemplateControllerCompleted"
	// TemplatesFailing is True while one cannot be rendered.
	TemplatesFailing = "TemplateControllerFailing"
)

// Condition types of a KubeletConfig.
const (
	// KubeletConfigAccepted is True while its settings are valid.
	KubeletConfigAccepted = "Accepted"
)
