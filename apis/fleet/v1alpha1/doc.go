// Package v1alpha1 is the API group fleet.machine.sapcloud.io/v1alpha1: the objects with which an
// administrator configures Nodes in place, and every name that the controllers and the daemon on
// each Node share through them.
//
//   - A MachineConfig is a fragment of configuration: files, units and users as an Ignition config,
//     kernel arguments, and more.
//   - A MachineConfigPool selects MachineConfigs and Nodes, and limits how many of its Nodes may be
//     updated at a time.
//   - A RenderedMachineConfig is the result of all MachineConfigs of a pool. Its name contains a
//     hash of its content; it never changes.
//   - A ControllerConfig has the values that templates of MachineConfigs are filled with.
//   - A KubeletConfig has settings of kubelets for the pools that it selects.
//
// All kinds are cluster-scoped: a MachineConfig can write any file of a Node as root, and no tenant
// of a namespace may do that. Names of fields and annotations, and values, are those of the
// machine-config-operator's first design where it has them. The tag updatingMachines, which counts
// the Nodes that are updated, is one of them.
//
// The CustomResourceDefinitions generated from these types are in package crds.
//
// +kubebuilder:object:generate=true
// +groupName=fleet.machine.sapcloud.io
package v1alpha1
