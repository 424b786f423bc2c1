package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Machine is one VM at a cloud and the Node that it becomes.
//
// +genclient
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Namespaced,path=machines,shortName=mc
// +kubebuilder:subresource:status
// +kubebuilder:selectablefield:JSONPath=".spec.class.name"
// +kubebuilder:printcolumn:name="Status",type=string,JSONPath=`.status.currentStatus.phase`,description="Where the machine is in its life"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`,description="Time since creation"
// +kubebuilder:printcolumn:name="Node",type=string,JSONPath=`.metadata.labels.node`,description="Name of the machine's Node"
// +kubebuilder:printcolumn:name="ProviderID",type=string,priority=1,JSONPath=`.spec.providerID`,description="The cloud's name of the VM"
// +kubebuilder:printcolumn:name="Since",type=date,priority=1,JSONPath=`.status.currentStatus.lastUpdateTime`,description="Time since the machine is in this phase"
// +kubebuilder:printcolumn:name="Preserved-Until",type=string,priority=1,JSONPath=`.status.currentStatus.preserveExpiryTime`,description="Until when the machine is preserved"
// +kubebuilder:printcolumn:name="Operation",type=string,priority=1,JSONPath=`.status.lastOperation.type`,description="The last operation"
// +kubebuilder:printcolumn:name="Result",type=string,priority=1,JSONPath=`.status.lastOperation.state`,description="The result of the last operation"
// +kubebuilder:printcolumn:name="Reason",type=string,priority=1,JSONPath=`.status.lastOperation.description`,description="What the last operation reports"
// +kubebuilder:validation:XValidation:rule=`self.?spec.?class.hasValue() || (oldSelf.hasValue() && !oldSelf.?spec.?class.hasValue())`,optionalOldSelf=true,fieldPath=".spec.class",reason=FieldValueRequired,message="Kind and name of the class are required"
type Machine struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec is the desired state.
	// +optional
	Spec MachineSpec `json:"spec,omitempty,omitzero"`
	// Status is the last observed state.
	// +optional
	Status MachineStatus `json:"status,omitempty,omitzero"`
}

// MachineList is a list of Machines.
//
// +kubebuilder:object:root=true
type MachineList struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Machine `json:"items"`
}

// MachineSpec describes how a machine is created and how its Node is treated.
type MachineSpec struct {
	// Class names the MachineClass, in the Machine's namespace, by which the VM is created.
	// +optional
	// +kubebuilder:validation:XValidation:rule=`self.?kind.orValue("") != ""`,fieldPath=".kind",reason=FieldValueRequired,message="Kind is required"
	// +kubebuilder:validation:XValidation:rule=`self.?name.orValue("") != ""`,fieldPath=".name",reason=FieldValueRequired,message="Name is required"
	Class ClassSpec `json:"class,omitempty,omitzero"`

	// ProviderID is the cloud's name of the VM. The controller writes it once, when the VM has been
	// created. A user sets it only to bring in a VM that exists.
	// +optional
	ProviderID string `json:"providerID,omitempty"`

	// NodeTemplateSpec contains what the Node has to carry. Labels, annotations and taints are kept in
	// sync with the Node; the rest has no effect.
	// +optional
	NodeTemplateSpec NodeTemplateSpec `json:"nodeTemplate,omitempty,omitzero"`

	// MachineConfiguration overrides, for this machine, what the controller's flags set. Nil overrides
	// nothing.
	*MachineConfiguration `json:",inline"`
}

// ClassSpec refers to the class of a machine.
type ClassSpec struct {
	// APIGroup of the class. It has no effect beyond being compared when a template changes.
	// +optional
	APIGroup string `json:"apiGroup,omitempty"`
	// Kind of the class: MachineClass.
	// +optional
	Kind string `json:"kind,omitempty"`
	// Name of the class, in the machine's namespace.
	// +optional
	Name string `json:"name,omitempty"`
}

// NodeTemplateSpec contains what a Node has to carry.
type NodeTemplateSpec struct {
	// Labels and annotations for the Node.
	// +optional
	// +kubebuilder:pruning:PreserveUnknownFields
	metav1.ObjectMeta `json:"metadata,omitempty,omitzero"`
	// Spec holds the taints for the Node. Its other fields have no effect.
	// +optional
	Spec corev1.NodeSpec `json:"spec,omitempty,omitzero"`
}

// MachineConfiguration overrides the controller's flags for one machine. Every nil field leaves the
// flag's value.
type MachineConfiguration struct {
	// MachineDrainTimeout is how long the drain of the Node may take, from the deletion of the machine
	// on, before it is forced. Nil means --machine-drain-timeout.
	// +optional
	// +kubebuilder:validation:XValidation:rule=`oldSelf.hasValue() && oldSelf.value() == self || self.matches("^[-+]?(0|(([0-9]+[.]?[0-9]*|[.][0-9]+)(ns|us|µs|μs|ms|s|m|h))+)$") && duration(self) <= duration("2562047h")`,optionalOldSelf=true,messageExpression=`"must be a duration such as 20m or 1h30m, and is \"" + self + "\""`,message="must be a duration such as 20m or 1h30m"
	MachineDrainTimeout *metav1.Duration `json:"drainTimeout,omitempty"`
	// MachineHealthTimeout is how long the Node may be unhealthy before the machine fails and is
	// replaced. Nil means --machine-health-timeout.
	// +optional
	// +kubebuilder:validation:XValidation:rule=`oldSelf.hasValue() && oldSelf.value() == self || self.matches("^[-+]?(0|(([0-9]+[.]?[0-9]*|[.][0-9]+)(ns|us|µs|μs|ms|s|m|h))+)$") && duration(self) <= duration("2562047h")`,optionalOldSelf=true,messageExpression=`"must be a duration such as 20m or 1h30m, and is \"" + self + "\""`,message="must be a duration such as 20m or 1h30m"
	MachineHealthTimeout *metav1.Duration `json:"healthTimeout,omitempty"`
	// MachineCreationTimeout is how long, from its creation on, a machine may take to become a healthy
	// Node before it fails. Nil means --machine-creation-timeout.
	// +optional
	// +kubebuilder:validation:XValidation:rule=`oldSelf.hasValue() && oldSelf.value() == self || self.matches("^[-+]?(0|(([0-9]+[.]?[0-9]*|[.][0-9]+)(ns|us|µs|μs|ms|s|m|h))+)$") && duration(self) <= duration("2562047h")`,optionalOldSelf=true,messageExpression=`"must be a duration such as 20m or 1h30m, and is \"" + self + "\""`,message="must be a duration such as 20m or 1h30m"
	MachineCreationTimeout *metav1.Duration `json:"creationTimeout,omitempty"`
	// MachineInPlaceUpdateTimeout is how long an in-place update may take before it counts as failed.
	// Nil means --machine-inplace-update-timeout.
	// +optional
	// +kubebuilder:validation:XValidation:rule=`oldSelf.hasValue() && oldSelf.value() == self || self.matches("^[-+]?(0|(([0-9]+[.]?[0-9]*|[.][0-9]+)(ns|us|µs|μs|ms|s|m|h))+)$") && duration(self) <= duration("2562047h")`,optionalOldSelf=true,messageExpression=`"must be a duration such as 20m or 1h30m, and is \"" + self + "\""`,message="must be a duration such as 20m or 1h30m"
	MachineInPlaceUpdateTimeout *metav1.Duration `json:"inPlaceUpdateTimeout,omitempty"`
	// MachinePreserveTimeout is how long a preserved machine is kept. Nil means
	// --machine-preserve-timeout.
	// +optional
	// +kubebuilder:validation:XValidation:rule=`oldSelf.hasValue() && oldSelf.value() == self || self.matches("^[-+]?(0|(([0-9]+[.]?[0-9]*|[.][0-9]+)(ns|us|µs|μs|ms|s|m|h))+)$") && duration(self) <= duration("2562047h")`,optionalOldSelf=true,messageExpression=`"must be a duration such as 20m or 1h30m, and is \"" + self + "\""`,message="must be a duration such as 20m or 1h30m"
	MachinePreserveTimeout *metav1.Duration `json:"machinePreserveTimeout,omitempty"`
	// DisableHealthTimeout keeps a machine from failing, however long its Node is unhealthy. Nil means
	// false.
	// +optional
	DisableHealthTimeout *bool `json:"disableHealthTimeout,omitempty"`
	// MaxEvictRetries is for how long the eviction of a pod is retried during a drain before the pod
	// is deleted by force: 20 s for each. Nil means --machine-max-evict-retries.
	// +optional
	MaxEvictRetries *int32 `json:"maxEvictRetries,omitempty"`
	// NodeConditions are the types, separated by commas, of the Node conditions that must be False for
	// the Node to be healthy, in addition to Ready, which must be True. Nil means --node-conditions.
	// +optional
	NodeConditions *string `json:"nodeConditions,omitempty"`
}

// MachineTemplateSpec is the template of new machines.
//
// +kubebuilder:validation:XValidation:rule=`self.?spec.?class.hasValue() || (oldSelf.hasValue() && !oldSelf.?spec.?class.hasValue())`,optionalOldSelf=true,fieldPath=".spec.class",reason=FieldValueRequired,message="Kind and name of the class are required"
type MachineTemplateSpec struct {
	// Labels, annotations and finalizers of new machines.
	// +optional
	// +kubebuilder:pruning:PreserveUnknownFields
	metav1.ObjectMeta `json:"metadata,omitempty,omitzero"`
	// Spec of new machines.
	// +optional
	Spec MachineSpec `json:"spec,omitempty,omitzero"`
}

// MachineStatus is the last observed state of a machine.
type MachineStatus struct {
	// Addresses of the VM. Set only where there is no target cluster whose Node would have them.
	// +optional
	Addresses []corev1.NodeAddress `json:"addresses,omitempty"`
	// Conditions are a copy of the Node's conditions.
	// +optional
	Conditions []corev1.NodeCondition `json:"conditions,omitempty"`
	// LastOperation is the last thing that was done, or tried, with the machine.
	// +optional
	LastOperation LastOperation `json:"lastOperation,omitempty,omitzero"`
	// CurrentStatus is where the machine is in its life.
	// +optional
	CurrentStatus CurrentStatus `json:"currentStatus,omitempty,omitzero"`
	// LastKnownState is a note that the driver wrote for itself. No other program reads it.
	// +optional
	LastKnownState string `json:"lastKnownState,omitempty"`
}

// LastOperation is the last thing that was done, or tried, with a machine.
type LastOperation struct {
	// Description is for people. No program reads it.
	// +optional
	Description string `json:"description,omitempty"`
	// ErrorCode is the name of the driver's error code (such as ResourceExhausted) when State is
	// Failed and the cloud was the cause.
	// +optional
	ErrorCode string `json:"errorCode,omitempty"`
	// LastUpdateTime is when the operation was last written.
	// +optional
	LastUpdateTime metav1.Time `json:"lastUpdateTime,omitempty,omitzero"`
	// State is the result of the operation.
	// +optional
	State MachineState `json:"state,omitempty"`
	// Type is the kind of the operation.
	// +optional
	Type MachineOperationType `json:"type,omitempty"`
}

// CurrentStatus describes where a machine is in its life.
type CurrentStatus struct {
	// Phase of life. Empty means that no VM has been created, or none that was recorded.
	// +optional
	Phase MachinePhase `json:"phase,omitempty"`
	// TimeoutActive reports whether the phase is left for Failed when a timeout runs out.
	// +optional
	TimeoutActive bool `json:"timeoutActive,omitempty"`
	// LastUpdateTime is when the phase was entered.
	// +optional
	LastUpdateTime metav1.Time `json:"lastUpdateTime,omitempty,omitzero"`
	// PreserveExpiryTime is until when the machine is preserved. Nil means that it is not.
	// +optional
	PreserveExpiryTime *metav1.Time `json:"preserveExpiryTime,omitempty"`
}

// MachineSummary contains what the status of a MachineSet or MachineDeployment reports of one
// machine.
type MachineSummary struct {
	// Name of the Machine.
	// +optional
	Name string `json:"name,omitempty"`
	// ProviderID is the cloud's name of the VM.
	// +optional
	ProviderID string `json:"providerID,omitempty"`
	// LastOperation of the Machine.
	// +optional
	LastOperation LastOperation `json:"lastOperation,omitempty,omitzero"`
	// OwnerRef is the name of the Machine's MachineSet.
	// +optional
	OwnerRef string `json:"ownerRef,omitempty"`
}

// MachinePhase is a phase in the life of a machine. The empty phase comes before all others.
type MachinePhase string

const (
	// MachinePending means that the VM has been created and its Node is awaited.
	MachinePending MachinePhase = "Pending"
	// MachineAvailable means that the VM has been created, where there is no target cluster in which a
	// Node could appear.
	MachineAvailable MachinePhase = "Available"
	// MachineRunning means that the Node has joined and is healthy.
	MachineRunning MachinePhase = "Running"
	// MachineTerminating means that the machine is being deleted.
	MachineTerminating MachinePhase = "Terminating"
	// MachineUnknown means that the Node is unhealthy or missing, and the health timeout has not run
	// out.
	MachineUnknown MachinePhase = "Unknown"
	// MachineFailed means that the machine has failed. Its MachineSet replaces it, unless it is
	// preserved.
	MachineFailed MachinePhase = "Failed"
	// MachineCrashLoopBackOff means that the VM could not be created, and that creation is retried.
	MachineCrashLoopBackOff MachinePhase = "CrashLoopBackOff"
	// MachineInPlaceUpdating means that the Node is drained and its update in place is awaited.
	MachineInPlaceUpdating MachinePhase = "InPlaceUpdating"
	// MachineInPlaceUpdateSuccessful means that the update in place succeeded and the Node is not yet
	// back.
	MachineInPlaceUpdateSuccessful MachinePhase = "InPlaceUpdateSuccessful"
	// MachineInPlaceUpdateFailed means that the update in place failed or took too long.
	MachineInPlaceUpdateFailed MachinePhase = "InPlaceUpdateFailed"
)

// MachineState is the result of an operation.
type MachineState string

const (
	// MachineStateProcessing means that the operation is in progress.
	MachineStateProcessing MachineState = "Processing"
	// MachineStateFailed means that the operation failed; it may be retried.
	MachineStateFailed MachineState = "Failed"
	// MachineStateSuccessful means that the operation is done.
	MachineStateSuccessful MachineState = "Successful"
)

// MachineOperationType is a kind of operation on a machine.
type MachineOperationType string

const (
	// MachineOperationCreate is the creation of the VM, until its Node has joined.
	MachineOperationCreate MachineOperationType = "Create"
	// MachineOperationUpdate is a change to the machine.
	MachineOperationUpdate MachineOperationType = "Update"
	// MachineOperationInPlaceUpdate is an update of the VM that keeps it.
	MachineOperationInPlaceUpdate MachineOperationType = "InPlaceUpdate"
	// MachineOperationDrainNode is the eviction of the Node's pods.
	MachineOperationDrainNode MachineOperationType = "DrainNode"
	// MachineOperationHealthCheck is the monitoring of the Node's health.
	MachineOperationHealthCheck MachineOperationType = "HealthCheck"
	// MachineOperationDelete is the removal of Node, VM and Machine.
	MachineOperationDelete MachineOperationType = "Delete"
)
