package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// MachineConfig is a fragment of the configuration of Nodes. A MachineConfigPool selects it by its
// labels, and merges it with all others that it selects, in the order of their names.
//
// +genclient
// +genclient:nonNamespaced
// +genclient:noStatus
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,path=machineconfigs,shortName=mcfg
// +kubebuilder:printcolumn:name="Generated-By",type=string,JSONPath=`.metadata.annotations.fleet\.machine\.sapcloud\.io/generated-by`,description="The controller that created it, empty for a user's"
// +kubebuilder:printcolumn:name="Ignition",type=string,JSONPath=`.spec.config.ignition.version`,description="Version of the Ignition config"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`,description="Time since creation"
type MachineConfig struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec is the configuration.
	// +optional
	Spec MachineConfigSpec `json:"spec,omitempty,omitzero"`
}

// MachineConfigList is a list of MachineConfigs.
//
// +kubebuilder:object:root=true
type MachineConfigList struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []MachineConfig `json:"items"`
}

// MachineConfigSpec is a configuration, or a fragment of one.
type MachineConfigSpec struct {
	// Config is an Ignition config of version 3.0 to 3.5, as an object. Without it no files, units and
	// users are configured. Sources of files must be data URLs: a rendered configuration is complete.
	// +optional
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:pruning:PreserveUnknownFields
	Config runtime.RawExtension `json:"config,omitempty,omitzero"`
	// KernelArguments are added to those that the Node boots with. An entry may have several,
	// separated by spaces.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MaxLength=4096
	KernelArguments []string `json:"kernelArguments,omitempty"`
	// Extensions are names of groups of packages that the operating system adds. Which names there are
	// is a setting of the fleet.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=253
	Extensions []string `json:"extensions,omitempty"`
	// FIPS requests FIPS 140 mode. It is set when a Node is installed: a change needs another Node.
	// +optional
	FIPS bool `json:"fips,omitempty"`
	// KernelType is the kernel that Nodes boot: default, realtime or 64k-pages. Empty means no
	// preference.
	// +optional
	// +kubebuilder:validation:Enum="";default;realtime;"64k-pages"
	KernelType KernelType `json:"kernelType,omitempty"`
	// OSImageURL is the image of the operating system. Empty means that of the ControllerConfig. That
	// of a MachineConfig which a controller has generated has no effect.
	// +optional
	// +kubebuilder:validation:MaxLength=2048
	OSImageURL string `json:"osImageURL,omitempty"`
}

// KernelType names a kernel.
type KernelType string

// Kernels. The empty name is no preference.
const (
	KernelDefault  KernelType = "default"
	KernelRealtime KernelType = "realtime"
	Kernel64KPages KernelType = "64k-pages"
)

// RenderedMachineConfig is the result of all MachineConfigs of a pool. Its name is that of the
// pool with a hash of its spec, so that a reader can verify it; the API server rejects changes.
//
// +genclient
// +genclient:nonNamespaced
// +genclient:noStatus
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,path=renderedmachineconfigs,shortName=rmcfg
// +kubebuilder:printcolumn:name="Pool",type=string,JSONPath=`.metadata.labels.fleet\.machine\.sapcloud\.io/pool`,description="The pool that it was rendered for"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`,description="Time since creation"
type RenderedMachineConfig struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec is the whole configuration.
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="must not change: the name contains a hash of it"
	Spec RenderedMachineConfigSpec `json:"spec"`
}

// RenderedMachineConfigList is a list of RenderedMachineConfigs.
//
// +kubebuilder:object:root=true
type RenderedMachineConfigList struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []RenderedMachineConfig `json:"items"`
}

// RenderedMachineConfigSpec contains all that the daemon on a Node needs. Its Ignition config has
// version 3.5.
type RenderedMachineConfigSpec struct {
	MachineConfigSpec `json:",inline"`
	// Actions are those of the pool.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=256
	Actions []ActionRule `json:"actions,omitempty"`
}

// ActionRule defines what a Node has to do after a part of its configuration has changed. Exactly
// one of path, unit and sshKeys names the part. The longest path that is the changed file, or a
// folder above it, decides; what no rule names needs a reboot. Of several actions the Node does the
// strongest: a reboot includes all others.
//
// +kubebuilder:validation:XValidation:rule="(has(self.path) ? 1 : 0) + (has(self.unit) ? 1 : 0) + (has(self.sshKeys) && self.sshKeys ? 1 : 0) == 1",message="must have exactly one of path, unit and sshKeys"
// +kubebuilder:validation:XValidation:rule="(self.action in ['Reload', 'Restart']) == has(self.service)",message="must have a service exactly for the actions Reload and Restart"
type ActionRule struct {
	// Path is a file, or a folder with everything below it.
	// +optional
	// +kubebuilder:validation:Pattern=`^/`
	// +kubebuilder:validation:MaxLength=4096
	Path string `json:"path,omitempty"`
	// Unit is the name of a systemd unit, its drop-ins included.
	// +optional
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9:_\\@][A-Za-z0-9:_.\\@-]*$`
	// +kubebuilder:validation:MaxLength=199
	Unit string `json:"unit,omitempty"`
	// SSHKeys is true for the authorized keys of users.
	// +optional
	SSHKeys bool `json:"sshKeys,omitempty"`
	// Action is the action of the Node: None, DaemonReload, Reload or Restart of a service, or Reboot.
	// +kubebuilder:validation:Enum=None;DaemonReload;Reload;Restart;Reboot
	Action ActionType `json:"action"`
	// Service is the systemd unit to reload or restart.
	// +optional
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9:_\\@][A-Za-z0-9:_.\\@-]*$`
	// +kubebuilder:validation:MaxLength=199
	Service string `json:"service,omitempty"`
}

// ActionType names an action.
type ActionType string

// Actions, weakest first.
const (
	// ActionNone needs nothing.
	ActionNone ActionType = "None"
	// ActionDaemonReload has systemd read its units again.
	ActionDaemonReload ActionType = "DaemonReload"
	// ActionReload reloads a service.
	ActionReload ActionType = "Reload"
	// ActionRestart restarts a service.
	ActionRestart ActionType = "Restart"
	// ActionReboot drains the Node and reboots it.
	ActionReboot ActionType = "Reboot"
)
