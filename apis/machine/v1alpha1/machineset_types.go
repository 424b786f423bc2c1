package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// MachineSet keeps a number of machines of one template running. MachineDeployments create
// MachineSets; a user may create one without a controller.
//
// +genclient
// +genclient:method=GetScale,verb=get,subresource=scale,result=k8s.io/api/autoscaling/v1.Scale
// +genclient:method=UpdateScale,verb=update,subresource=scale,input=k8s.io/api/autoscaling/v1.Scale,result=k8s.io/api/autoscaling/v1.Scale
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Namespaced,path=machinesets,shortName=mcs
// +kubebuilder:subresource:status
// +kubebuilder:subresource:scale:specpath=.spec.replicas,statuspath=.status.replicas,selectorpath=.status.selector
// +kubebuilder:printcolumn:name="Desired",type=integer,JSONPath=`.spec.replicas`,description="Machines wanted"
// +kubebuilder:printcolumn:name="Current",type=integer,JSONPath=`.status.replicas`,description="Machines there are"
// +kubebuilder:printcolumn:name="Ready",type=integer,JSONPath=`.status.readyReplicas`,description="Machines that are Running"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`,description="Time since creation"
// +kubebuilder:printcolumn:name="Available",type=integer,priority=1,JSONPath=`.status.availableReplicas`,description="Machines that can be used"
// +kubebuilder:printcolumn:name="Failure",type=string,priority=1,JSONPath=`.status.machineSetCondition[?(@.type=="ReplicaFailure")].reason`,description="Which requests the API server rejects"
// +kubebuilder:printcolumn:name="Held",type=string,priority=1,JSONPath=`.status.machineSetCondition[?(@.type=="DeletionsHeld")].reason`,description="Why machines are not deleted or replaced"
// +kubebuilder:printcolumn:name="Frozen",type=string,priority=1,JSONPath=`.status.machineSetCondition[?(@.type=="Frozen")].reason`,description="Why no machines are created"
// +kubebuilder:printcolumn:name="Invalid",type=string,priority=1,JSONPath=`.status.machineSetCondition[?(@.type=="Valid")].reason`,description="Why it is not reconciled"
// +kubebuilder:printcolumn:name="Create-Failed",type=string,priority=1,JSONPath=`.status.machineSetCondition[?(@.type=="MachineCreateFailure")].reason`,description="Whether the VM of a machine could not be created"
// +kubebuilder:printcolumn:name="Breaker",type=string,priority=1,JSONPath=`.status.machineSetCondition[?(@.type=="CircuitBreakerOpen")].reason`,description="Which circuit breaker keeps unhealthy machines from being replaced"
// +kubebuilder:printcolumn:name="Preserved-Failed",type=integer,priority=1,JSONPath=`.status.preservedFailedReplicas`,description="Failed machines that are preserved, and so not replaced"
type MachineSet struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec is the desired state.
	// +optional
	Spec MachineSetSpec `json:"spec,omitempty,omitzero"`
	// Status is the last observed state.
	// +optional
	Status MachineSetStatus `json:"status,omitempty,omitzero"`
}

// MachineSetList is a list of MachineSets.
//
// +kubebuilder:object:root=true
type MachineSetList struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []MachineSet `json:"items"`
}

// MachineSetSpec is the number of machines wanted, and their template.
//
// +kubebuilder:validation:XValidation:rule=`has(self.selector) || oldSelf.hasValue() && !oldSelf.?selector.hasValue()`,optionalOldSelf=true,fieldPath=".selector",reason=FieldValueRequired,message="must be there, to find the machines again"
// +kubebuilder:validation:XValidation:rule=`!has(self.selector) || !has(self.selector.matchLabels) || self.selector.matchLabels.all(k, self.?template.?metadata.?labels[?k].orValue("") == self.selector.matchLabels[k] || (oldSelf.?selector.?matchLabels[?k].orValue("") == self.selector.matchLabels[k] && oldSelf.?template.?metadata.?labels[?k].orValue("") != self.selector.matchLabels[k]))`,optionalOldSelf=true,fieldPath=".selector.matchLabels",message="is not matching with spec.template.metadata.labels: the template must carry every label of the selector"
// +kubebuilder:validation:XValidation:rule=`!has(self.selector) || !has(self.selector.matchExpressions) || oldSelf.hasValue() || self.selector.matchExpressions.all(e, (e.operator in ["In", "NotIn"] && has(e.values) && self.?template.?metadata.?labels[?e.key].hasValue() ? self.template.metadata.labels[e.key] in e.values : self.?template.?metadata.?labels[?e.key].hasValue()) == (e.operator in ["In", "Exists"]))`,optionalOldSelf=true,fieldPath=".selector.matchExpressions",message="is not matching with spec.template.metadata.labels: it must satisfy each expression"
// +kubebuilder:validation:XValidation:rule=`self.?template.?spec.?providerID.orValue("") == "" || oldSelf.?template.?spec.?providerID.orValue("") != ""`,optionalOldSelf=true,fieldPath=".template.spec.providerID",reason=FieldValueForbidden,message="must not be set: all machines of the template would have the same VM"
type MachineSetSpec struct {
	// Replicas is the number of machines wanted.
	// +optional
	// +kubebuilder:default=0
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000000
	Replicas int32 `json:"replicas,omitempty"`
	// Selector finds the set's machines by their labels. The template's labels must match it.
	// +optional
	// +kubebuilder:validation:XValidation:rule=`self.?matchLabels.orValue({}).size() + self.?matchExpressions.orValue([]).size() > 0`,message="must not be empty: it would select every machine"
	// +kubebuilder:validation:XValidation:rule=`(has(self.matchLabels) ? self.matchLabels.size() : 0) + (has(self.matchExpressions) ? self.matchExpressions.map(e, has(e.values) ? 1 + e.values.size() : 1).sum() : 0) <= 100`,message="must not have more than 100 labels, expressions and values"
	// +kubebuilder:validation:XValidation:rule=`(!has(self.matchLabels) || self.matchLabels.all(k, !(k in ["node", "node.machine.sapcloud.io/update-result"] || k.startsWith("fleet.machine.sapcloud.io/")))) && (!has(self.matchExpressions) || self.matchExpressions.all(e, !(e.key in ["node", "node.machine.sapcloud.io/update-result"] || e.key.startsWith("fleet.machine.sapcloud.io/"))))`,reason=FieldValueForbidden,message="must not use labels that the controllers write (node, node.machine.sapcloud.io/update-result, and those below fleet.machine.sapcloud.io/): what they create would not match it any more, and be created again without end"
	// +kubebuilder:validation:XValidation:rule=`!has(self.matchExpressions) || self.matchExpressions.all(e, e.operator in ["In", "NotIn"] ? has(e.values) && e.values.size() > 0 : e.operator in ["Exists", "DoesNotExist"] && (!has(e.values) || e.values.size() == 0))`,fieldPath=".matchExpressions",message="operators are In and NotIn with values, Exists and DoesNotExist without"
	Selector *metav1.LabelSelector `json:"selector,omitempty"`
	// MachineClass has no effect; it is kept for the metric that shows it. The class in use is the
	// template's.
	// +optional
	MachineClass ClassSpec `json:"machineClass,omitempty,omitzero"`
	// Template is the template of new machines.
	// +optional
	Template MachineTemplateSpec `json:"template,omitempty,omitzero"`
	// MinReadySeconds is copied from the MachineDeployment. Its meaning is described there.
	// +optional
	MinReadySeconds int32 `json:"minReadySeconds,omitempty"`
	// AutoPreserveFailedMachineMax is the number of failed machines to preserve without a request. 0
	// means none.
	// +optional
	AutoPreserveFailedMachineMax int32 `json:"autoPreserveFailedMachineMax,omitempty"`
}

// MachineSetStatus is the last observed state of a set's machines.
type MachineSetStatus struct {
	// Replicas is the number of machines there are, those being deleted included.
	// +optional
	// +kubebuilder:default=0
	Replicas int32 `json:"replicas,omitempty"`
	// FullyLabeledReplicas is the number of machines that carry all labels of the template.
	// +optional
	// +kubebuilder:default=0
	FullyLabeledReplicas int32 `json:"fullyLabeledReplicas,omitempty"`
	// ReadyReplicas is the number of machines in phase Running that are not being deleted.
	// +optional
	// +kubebuilder:default=0
	ReadyReplicas int32 `json:"readyReplicas,omitempty"`
	// AvailableReplicas is the number of machines in phase Available or Running that are not being
	// deleted, where minReadySeconds counts only of those that have been so for that long.
	// +optional
	// +kubebuilder:default=0
	AvailableReplicas int32 `json:"availableReplicas,omitempty"`
	// PreservedFailedReplicas is the number of failed machines that are preserved.
	// +optional
	PreservedFailedReplicas int32 `json:"preservedFailedReplicas,omitempty"`
	// ObservedGeneration is the generation of the spec that this status belongs to.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Selector is the spec's selector as a string, for the scale subresource. Filled by the
	// controller. MCM's objects do not have it: MCM's definitions prune it, and nothing in the fleet
	// reads it.
	// +optional
	Selector string `json:"selector,omitempty"`
	// Conditions of the set, one of each type. The name on the wire is MCM's.
	// +optional
	Conditions []MachineSetCondition `json:"machineSetCondition,omitempty"`
	// StandardConditions are Conditions once more, under the name and with the fields of other kinds
	// of Kubernetes. MCM's objects do not have them: MCM's definitions prune them, and nothing in the
	// fleet reads them.
	// +optional
	// +listType=map
	// +listMapKey=type
	StandardConditions []metav1.Condition `json:"conditions,omitempty"`
	// LastOperation is the last thing that was done, or tried, with a machine of the set.
	// +optional
	LastOperation LastOperation `json:"lastOperation,omitempty,omitzero"`
	// FailedMachines are the machines whose last operation failed, those that are preserved left out.
	// +optional
	FailedMachines *[]MachineSummary `json:"failedMachines,omitempty"`
	// AutoPreserveFailedMachineCount is the number of machines that are preserved without a request.
	// +optional
	AutoPreserveFailedMachineCount int32 `json:"autoPreserveFailedMachineCount,omitempty"`
}

// MachineSetCondition is one aspect of a set's state.
type MachineSetCondition struct {
	// Type names the aspect.
	Type MachineSetConditionType `json:"type"`
	// Status is True, False or Unknown.
	Status corev1.ConditionStatus `json:"status"`
	// LastTransitionTime is when Status last changed.
	// +optional
	LastTransitionTime metav1.Time `json:"lastTransitionTime,omitempty,omitzero"`
	// Reason is one word for programs.
	// +optional
	Reason string `json:"reason,omitempty"`
	// Message is a sentence for people.
	// +optional
	Message string `json:"message,omitempty"`
}
