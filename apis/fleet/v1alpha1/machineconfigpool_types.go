package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// MachineConfigPool brings its Nodes to the configuration that its MachineConfigs result in.
//
// +genclient
// +genclient:nonNamespaced
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,path=machineconfigpools,shortName=mcp
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Config",type=string,JSONPath=`.status.currentMachineConfig`,description="The RenderedMachineConfig that Nodes are brought to"
// +kubebuilder:printcolumn:name="Updated",type=string,JSONPath=`.status.conditions[?(@.type=="Updated")].status`,description="Whether all Nodes are on it, and ready"
// +kubebuilder:printcolumn:name="Updating",type=string,JSONPath=`.status.conditions[?(@.type=="Updating")].status`,description="Whether Nodes are being brought to it"
// +kubebuilder:printcolumn:name="Degraded",type=string,JSONPath=`.status.conditions[?(@.type=="Degraded")].status`,description="Whether rendering or a Node has failed"
// +kubebuilder:printcolumn:name="Machines",type=integer,JSONPath=`.status.machineCount`,description="Nodes of the pool"
// +kubebuilder:printcolumn:name="Up-to-date",type=integer,JSONPath=`.status.updatingMachines`,description="Nodes that are on the configuration, and ready"
// +kubebuilder:printcolumn:name="Unavailable",type=integer,JSONPath=`.status.unavailableMachines`,description="Nodes that are being updated or not ready"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`,description="Time since creation"
// +kubebuilder:validation:XValidation:rule="self.metadata.name.size() <= 63",message="must have a name of at most 63 characters: it is the value of a label"
type MachineConfigPool struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec is the desired state.
	// +optional
	Spec MachineConfigPoolSpec `json:"spec,omitempty,omitzero"`
	// Status is the last observed state.
	// +optional
	Status MachineConfigPoolStatus `json:"status,omitempty,omitzero"`
}

// MachineConfigPoolList is a list of MachineConfigPools.
//
// +kubebuilder:object:root=true
type MachineConfigPoolList struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []MachineConfigPool `json:"items"`
}

// MachineConfigPoolSpec selects MachineConfigs and Nodes.
//
// +kubebuilder:validation:XValidation:rule="has(self.nodeSelector) != has(self.machineRef)",message="must have exactly one of nodeSelector and machineRef"
// +kubebuilder:validation:XValidation:rule="!has(self.rollout) || self.rollout != 'MachineDeployment' || has(self.machineRef) && self.machineRef.kind == 'MachineDeployment'",message="must have a machineRef to a MachineDeployment for the rollout MachineDeployment"
type MachineConfigPoolSpec struct {
	// MachineConfigSelector selects MachineConfigs by their labels, as the selector of a Deployment
	// does. Absent or empty, it selects none.
	// +optional
	MachineConfigSelector *metav1.LabelSelector `json:"machineConfigSelector,omitempty"`
	// NodeSelector selects the pool's Nodes by their labels. Empty, it selects none.
	// +optional
	NodeSelector *metav1.LabelSelector `json:"nodeSelector,omitempty"`
	// MachineRef names the MachineDeployment or MachineSet whose Nodes are those of the pool. They are
	// in no pool with a nodeSelector.
	// +optional
	MachineRef *MachineReference `json:"machineRef,omitempty"`
	// Paused stops rendering, and that Nodes begin an update. Nodes that have begun finish.
	// +optional
	Paused bool `json:"paused,omitempty"`
	// MaxUnavailable is how many Nodes may be unavailable, as a number or as a share of the pool's
	// Nodes ("40%", rounded down). Absent or 0 it is 1.
	// +optional
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:XValidation:rule="type(self) == int ? self >= 0 : self.matches('^(100|[1-9]?[0-9])%$')",message="must be a number that is not negative, or a percentage from 0% to 100%"
	MaxUnavailable *intstr.IntOrString `json:"maxUnavailable,omitempty"`
	// Rollout is how Nodes get a new configuration. Absent it is Daemon.
	// +optional
	// +kubebuilder:validation:Enum=Daemon;MachineDeployment
	Rollout RolloutType `json:"rollout,omitempty"`
	// Priority decides which pool a Node belongs to that the nodeSelectors of several select: that of
	// the highest priority. A Node with two highest ones belongs to none.
	// +optional
	Priority int32 `json:"priority,omitempty"`
	// Actions define what a Node does after a part of its configuration has changed. What no rule
	// names needs a reboot.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=256
	Actions []ActionRule `json:"actions,omitempty"`
}

// MachineReference names a MachineDeployment or a MachineSet.
type MachineReference struct {
	// Kind is MachineDeployment or MachineSet.
	// +kubebuilder:validation:Enum=MachineDeployment;MachineSet
	Kind string `json:"kind"`
	// Namespace of the object.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Namespace string `json:"namespace"`
	// Name of the object.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
}

// RolloutType names a way to bring Nodes to a new configuration.
type RolloutType string

// Ways to bring Nodes to a new configuration.
const (
	// RolloutDaemon has the daemon on each Node apply it.
	RolloutDaemon RolloutType = "Daemon"
	// RolloutMachineDeployment writes it into the template of the MachineDeployment, whose strategy
	// updates or replaces machines.
	RolloutMachineDeployment RolloutType = "MachineDeployment"
)

// MachineConfigPoolStatus is the last observed state of a pool.
type MachineConfigPoolStatus struct {
	// ObservedGeneration is the generation of the spec that this status belongs to.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// CurrentMachineConfig is the RenderedMachineConfig that Nodes are brought to: the target.
	// +optional
	CurrentMachineConfig string `json:"currentMachineConfig,omitempty"`
	// CompletedMachineConfig is the last target that all Nodes were brought to.
	// +optional
	CompletedMachineConfig string `json:"completedMachineConfig,omitempty"`
	// AbandonedMachineConfigs are the last ten targets that were given up before all Nodes had them,
	// oldest first. A Node that is not ready with one of them is brought to the target without regard
	// for maxUnavailable.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=10
	AbandonedMachineConfigs []string `json:"abandonedMachineConfigs,omitempty"`
	// Sources are the names of the MachineConfigs that the target was rendered from, in their order.
	// +optional
	// +listType=atomic
	Sources []string `json:"sources,omitempty"`
	// MachineCount is the number of Nodes of the pool.
	// +optional
	MachineCount int32 `json:"machineCount,omitempty"`
	// UpdatedMachineCount is the number of Nodes that are done with the target, and whose condition
	// Ready is True. The name on the wire is that of the first design.
	// +optional
	UpdatedMachineCount int32 `json:"updatingMachines,omitempty"`
	// ReadyMachineCount is the number of updated Nodes that are available to pods.
	// +optional
	ReadyMachineCount int32 `json:"readyMachines,omitempty"`
	// UnavailableMachineCount is the number of Nodes that are being updated, or not available to pods.
	// +optional
	UnavailableMachineCount int32 `json:"unavailableMachines,omitempty"`
	// DegradedMachineCount is the number of Nodes whose daemon reports a failure.
	// +optional
	DegradedMachineCount int32 `json:"degradedMachines,omitempty"`
	// Conditions of the pool, one of each type. Each type has one writer.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}
