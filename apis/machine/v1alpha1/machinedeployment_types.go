package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// MachineDeployment keeps a number of machines of one template running, and replaces them when the
// template changes.
//
// +genclient
// +genclient:method=GetScale,verb=get,subresource=scale,result=k8s.io/api/autoscaling/v1.Scale
// +genclient:method=UpdateScale,verb=update,subresource=scale,input=k8s.io/api/autoscaling/v1.Scale,result=k8s.io/api/autoscaling/v1.Scale
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Namespaced,path=machinedeployments,shortName=mcd
// +kubebuilder:subresource:status
// +kubebuilder:subresource:scale:specpath=.spec.replicas,statuspath=.status.replicas,selectorpath=.status.selector
// +kubebuilder:printcolumn:name="Ready",type=integer,JSONPath=`.status.readyReplicas`,description="Machines that are Running"
// +kubebuilder:printcolumn:name="Desired",type=integer,JSONPath=`.spec.replicas`,description="Machines wanted"
// +kubebuilder:printcolumn:name="Up-to-date",type=integer,JSONPath=`.status.updatedReplicas`,description="Machines of the current template"
// +kubebuilder:printcolumn:name="Available",type=integer,JSONPath=`.status.availableReplicas`,description="Machines that can be used"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`,description="Time since creation"
// +kubebuilder:printcolumn:name="Min",type=string,priority=1,JSONPath=`.metadata.annotations.autoscaler\.machine\.sapcloud\.io/min-size`,description="Fewest replicas that an autoscaler sets"
// +kubebuilder:printcolumn:name="Max",type=string,priority=1,JSONPath=`.metadata.annotations.autoscaler\.machine\.sapcloud\.io/max-size`,description="Most replicas that an autoscaler sets"
// +kubebuilder:printcolumn:name="Paused",type=boolean,priority=1,JSONPath=`.spec.paused`,description="Whether rollouts are paused"
// +kubebuilder:printcolumn:name="Progressing",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Progressing")].reason`,description="How far the rollout is"
// +kubebuilder:printcolumn:name="Stalled",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="RolloutStalled")].reason`,description="Why the rollout makes no progress"
// +kubebuilder:printcolumn:name="Held",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="DeletionsHeld")].reason`,description="Why machines are not deleted or replaced"
// +kubebuilder:printcolumn:name="Frozen",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Frozen")].reason`,description="Why no machines are created"
// +kubebuilder:printcolumn:name="Invalid",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Valid")].reason`,description="Why it is not reconciled"
// +kubebuilder:printcolumn:name="Failure",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="ReplicaFailure")].reason`,description="Which requests the API server rejects"
// +kubebuilder:printcolumn:name="Create-Failed",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="MachineCreateFailure")].reason`,description="Whether the VM of a machine could not be created"
// +kubebuilder:printcolumn:name="Breaker",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="CircuitBreakerOpen")].reason`,description="Which circuit breaker keeps unhealthy machines from being replaced"
// +kubebuilder:printcolumn:name="Preserved-Failed",type=integer,priority=1,JSONPath=`.status.preservedFailedReplicas`,description="Failed machines that are preserved, and so not replaced"
type MachineDeployment struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec is the desired state.
	// +optional
	Spec MachineDeploymentSpec `json:"spec,omitempty,omitzero"`
	// Status is the last observed state.
	// +optional
	Status MachineDeploymentStatus `json:"status,omitempty,omitzero"`
}

// MachineDeploymentList is a list of MachineDeployments.
//
// +kubebuilder:object:root=true
type MachineDeploymentList struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []MachineDeployment `json:"items"`
}

// MachineDeploymentSpec is the number of machines wanted, their template, and how they are
// replaced.
//
// +kubebuilder:validation:XValidation:rule=`has(self.selector) || oldSelf.hasValue() && !oldSelf.?selector.hasValue()`,optionalOldSelf=true,fieldPath=".selector",reason=FieldValueRequired,message="must be there, to find the machines again"
// +kubebuilder:validation:XValidation:rule=`!has(self.selector) || !has(self.selector.matchLabels) || self.selector.matchLabels.all(k, self.?template.?metadata.?labels[?k].orValue("") == self.selector.matchLabels[k] || (oldSelf.?selector.?matchLabels[?k].orValue("") == self.selector.matchLabels[k] && oldSelf.?template.?metadata.?labels[?k].orValue("") != self.selector.matchLabels[k]))`,optionalOldSelf=true,fieldPath=".selector.matchLabels",message="is not matching with spec.template.metadata.labels: the template must carry every label of the selector"
// +kubebuilder:validation:XValidation:rule=`!has(self.selector) || !has(self.selector.matchExpressions) || oldSelf.hasValue() || self.selector.matchExpressions.all(e, (e.operator in ["In", "NotIn"] && has(e.values) && self.?template.?metadata.?labels[?e.key].hasValue() ? self.template.metadata.labels[e.key] in e.values : self.?template.?metadata.?labels[?e.key].hasValue()) == (e.operator in ["In", "Exists"]))`,optionalOldSelf=true,fieldPath=".selector.matchExpressions",message="is not matching with spec.template.metadata.labels: it must satisfy each expression"
// +kubebuilder:validation:XValidation:rule=`self.?template.?spec.?providerID.orValue("") == "" || oldSelf.?template.?spec.?providerID.orValue("") != ""`,optionalOldSelf=true,fieldPath=".template.spec.providerID",reason=FieldValueForbidden,message="must not be set: all machines of the template would have the same VM"
type MachineDeploymentSpec struct {
	// Replicas is the number of machines wanted.
	// +optional
	// +kubebuilder:default=0
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000000
	Replicas int32 `json:"replicas,omitempty"`
	// Selector finds the deployment's MachineSets and machines by their labels. The template's labels
	// must match it.
	// +optional
	// +kubebuilder:validation:XValidation:rule=`self.?matchLabels.orValue({}).size() + self.?matchExpressions.orValue([]).size() > 0`,message="must not be empty: it would select every machine"
	// +kubebuilder:validation:XValidation:rule=`(has(self.matchLabels) ? self.matchLabels.size() : 0) + (has(self.matchExpressions) ? self.matchExpressions.map(e, has(e.values) ? 1 + e.values.size() : 1).sum() : 0) <= 100`,message="must not have more than 100 labels, expressions and values"
	// +kubebuilder:validation:XValidation:rule=`(!has(self.matchLabels) || self.matchLabels.all(k, !(k in ["node", "node.machine.sapcloud.io/update-result", "machine-template-hash", "freeze", "node.machine.sapcloud.io/scale-up-disabled"] || k.startsWith("fleet.machine.sapcloud.io/")))) && (!has(self.matchExpressions) || self.matchExpressions.all(e, !(e.key in ["node", "node.machine.sapcloud.io/update-result", "machine-template-hash", "freeze", "node.machine.sapcloud.io/scale-up-disabled"] || e.key.startsWith("fleet.machine.sapcloud.io/"))))`,reason=FieldValueForbidden,message="must not use labels that the controllers write (node, machine-template-hash, freeze, node.machine.sapcloud.io/update-result, node.machine.sapcloud.io/scale-up-disabled, and those below fleet.machine.sapcloud.io/): what they create would not match it any more, and be created again without end"
	// +kubebuilder:validation:XValidation:rule=`!has(self.matchExpressions) || self.matchExpressions.all(e, e.operator in ["In", "NotIn"] ? has(e.values) && e.values.size() > 0 : e.operator in ["Exists", "DoesNotExist"] && (!has(e.values) || e.values.size() == 0))`,fieldPath=".matchExpressions",message="operators are In and NotIn with values, Exists and DoesNotExist without"
	Selector *metav1.LabelSelector `json:"selector,omitempty"`
	// Template is the template of new machines. A change of its labels, its annotations or its
	// class' name or API group replaces the machines; every other change is applied to the existing
	// machines.
	Template MachineTemplateSpec `json:"template"`
	// Strategy describes how machines are replaced. Empty means RollingUpdate with maxSurge 1 and
	// maxUnavailable 0.
	// +optional
	Strategy MachineDeploymentStrategy `json:"strategy,omitempty,omitzero"`
	// MinReadySeconds is copied to the MachineSets. MCM ignores it, and so does the fleet, unless
	// --count-min-ready-seconds or the annotation fleet.machine.sapcloud.io/count-min-ready-seconds
	// sets otherwise: then a machine is available when it has been Running, or Available, for that
	// long without a break.
	// +optional
	MinReadySeconds int32 `json:"minReadySeconds,omitempty"`
	// RevisionHistoryLimit is the number of old MachineSets to keep for a rollback. Nil keeps all.
	// +optional
	RevisionHistoryLimit *int32 `json:"revisionHistoryLimit,omitempty"`
	// Paused stops rollouts. Scaling continues.
	// +optional
	Paused bool `json:"paused,omitempty"`
	// RollbackTo requests a rollback, once. The controller clears it.
	// +optional
	RollbackTo *RollbackConfig `json:"rollbackTo,omitempty"`
	// ProgressDeadlineSeconds is how long a rollout may go without progress before the condition
	// Progressing becomes False. Nil means no limit.
	// +optional
	ProgressDeadlineSeconds *int32 `json:"progressDeadlineSeconds,omitempty"`
	// AutoPreserveFailedMachineMax is the number of failed machines to preserve without a request. 0
	// means none.
	// +optional
	AutoPreserveFailedMachineMax int32 `json:"autoPreserveFailedMachineMax,omitempty"`
}

// MachineDeploymentStrategy describes how machines are replaced. Only what belongs to the type in
// effect is checked.
//
// +kubebuilder:validation:XValidation:rule=`self.?type.orValue("") != "RollingUpdate" || (self.?rollingUpdate.?maxSurge.hasValue() && self.?rollingUpdate.?maxUnavailable.hasValue())`,message="type RollingUpdate needs rollingUpdate with maxSurge and maxUnavailable"
// +kubebuilder:validation:XValidation:rule=`self.?type.orValue("") != "InPlaceUpdate" || (self.?inPlaceUpdate.?maxSurge.hasValue() && self.?inPlaceUpdate.?maxUnavailable.hasValue())`,message="type InPlaceUpdate needs inPlaceUpdate with maxSurge and maxUnavailable"
// +kubebuilder:validation:XValidation:rule=`self.?type.orValue("") != "InPlaceUpdate" || self.?inPlaceUpdate.?orchestrationType.orValue("") in ["Auto", "Manual"]`,message="orchestrationType must be either Auto or Manual"
// +kubebuilder:validation:XValidation:rule=`self.?type.orValue("") != "" || !has(self.inPlaceUpdate)`,message="inPlaceUpdate needs type InPlaceUpdate: without a type machines are replaced one by one"
// +kubebuilder:validation:XValidation:rule=`!(self.?type.orValue("") in ["", "RollingUpdate"]) || [self.?rollingUpdate.?maxSurge.orValue(0), self.?rollingUpdate.?maxUnavailable.orValue(0)].all(limit, type(limit) == int ? limit >= 0 && limit <= 1000000 : limit.matches("^[+]?[0-9]+%$"))`,message="maxSurge and maxUnavailable of rollingUpdate must be numbers that are not negative, or percentages such as 25%, and at most 1000000"
// +kubebuilder:validation:XValidation:rule=`self.?type.orValue("") != "InPlaceUpdate" || [self.?inPlaceUpdate.?maxSurge.orValue(0), self.?inPlaceUpdate.?maxUnavailable.orValue(0)].all(limit, type(limit) == int ? limit >= 0 && limit <= 1000000 : limit.matches("^[+]?[0-9]+%$"))`,message="maxSurge and maxUnavailable of inPlaceUpdate must be numbers that are not negative, or percentages such as 25%, and at most 1000000"
type MachineDeploymentStrategy struct {
	// Type of the strategy: Recreate, RollingUpdate or InPlaceUpdate.
	// +optional
	Type MachineDeploymentStrategyType `json:"type,omitempty"`
	// RollingUpdate holds the limits of a RollingUpdate.
	// +optional
	RollingUpdate *RollingUpdateMachineDeployment `json:"rollingUpdate,omitempty"`
	// InPlaceUpdate holds the limits of an InPlaceUpdate.
	// +optional
	InPlaceUpdate *InPlaceUpdateMachineDeployment `json:"inPlaceUpdate,omitempty"`
}

// MachineDeploymentStrategyType is a way to replace machines.
//
// +kubebuilder:validation:Enum="";Recreate;RollingUpdate;InPlaceUpdate
type MachineDeploymentStrategyType string

const (
	// RecreateMachineDeploymentStrategyType deletes all old machines before it creates new ones.
	RecreateMachineDeploymentStrategyType MachineDeploymentStrategyType = "Recreate"
	// RollingUpdateMachineDeploymentStrategyType replaces old machines by new ones step by step.
	RollingUpdateMachineDeploymentStrategyType MachineDeploymentStrategyType = "RollingUpdate"
	// InPlaceUpdateMachineDeploymentStrategyType updates the machines without replacing their VMs.
	InPlaceUpdateMachineDeploymentStrategyType MachineDeploymentStrategyType = "InPlaceUpdate"
)

// UpdateConfiguration limits how many machines are replaced at a time. If both limits come to 0,
// maxUnavailable is 1. A negative one, which may be left over from MCM, counts as 0.
type UpdateConfiguration struct {
	// MaxUnavailable is how many of the wanted machines may be unavailable: a number, or a percentage
	// of replicas, rounded down.
	// +optional
	// +kubebuilder:validation:XValidation:rule=`type(self) != int || (self >= -2147483648 && self <= 2147483647)`,message="must be a 32-bit number"
	MaxUnavailable *intstr.IntOrString `json:"maxUnavailable,omitempty"`
	// MaxSurge is how many machines there may be beyond the wanted ones: a number, or a percentage of
	// replicas, rounded up.
	// +optional
	// +kubebuilder:validation:XValidation:rule=`type(self) != int || (self >= -2147483648 && self <= 2147483647)`,message="must be a 32-bit number"
	MaxSurge *intstr.IntOrString `json:"maxSurge,omitempty"`
}

// RollingUpdateMachineDeployment holds the limits of a RollingUpdate.
type RollingUpdateMachineDeployment struct {
	UpdateConfiguration `json:",inline"`
}

// InPlaceUpdateMachineDeployment holds the limits of an InPlaceUpdate.
type InPlaceUpdateMachineDeployment struct {
	UpdateConfiguration `json:",inline"`
	// OrchestrationType decides who selects the machines to be updated next. With Manual the user
	// decides how many at a time, too: no machine is created in their place, regardless of maxSurge.
	// +optional
	OrchestrationType OrchestrationType `json:"orchestrationType,omitempty"`
}

// OrchestrationType decides who selects the machines to be updated in place next.
type OrchestrationType string

const (
	// OrchestrationTypeAuto leaves the choice to the controller.
	OrchestrationTypeAuto OrchestrationType = "Auto"
	// OrchestrationTypeManual leaves the choice to the user, who labels Nodes.
	OrchestrationTypeManual OrchestrationType = "Manual"
)

// RollbackConfig requests a rollback.
type RollbackConfig struct {
	// Revision to roll back to. 0 means the one before the current.
	// +optional
	Revision int64 `json:"revision,omitempty"`
}

// MachineDeploymentStatus is the last observed state of a deployment's machines.
type MachineDeploymentStatus struct {
	// ObservedGeneration is the generation of the spec that this status belongs to.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Replicas is the number of machines there are, those being deleted included.
	// +optional
	// +kubebuilder:default=0
	Replicas int32 `json:"replicas,omitempty"`
	// UpdatedReplicas is the number of machines of the current template.
	// +optional
	// +kubebuilder:default=0
	UpdatedReplicas int32 `json:"updatedReplicas,omitempty"`
	// ReadyReplicas is the number of machines in phase Running.
	// +optional
	// +kubebuilder:default=0
	ReadyReplicas int32 `json:"readyReplicas,omitempty"`
	// AvailableReplicas is the number of machines in phase Available or Running.
	// +optional
	// +kubebuilder:default=0
	AvailableReplicas int32 `json:"availableReplicas,omitempty"`
	// PreservedFailedReplicas is the number of failed machines that are preserved.
	// +optional
	PreservedFailedReplicas int32 `json:"preservedFailedReplicas,omitempty"`
	// UnavailableReplicas is the number of machines that the MachineSets are to have and that are not
	// available.
	// +optional
	// +kubebuilder:default=0
	UnavailableReplicas int32 `json:"unavailableReplicas,omitempty"`
	// Selector is the spec's selector as a string, for the scale subresource. Filled by the
	// controller. MCM's objects do not have it: MCM's definitions prune it, and nothing in the fleet
	// reads it.
	// +optional
	Selector string `json:"selector,omitempty"`
	// Conditions of the deployment, one of each type.
	// +optional
	Conditions []MachineDeploymentCondition `json:"conditions,omitempty"`
	// CollisionCount is how often the name of a new MachineSet was already taken. It is part of the
	// next name.
	// +optional
	CollisionCount *int32 `json:"collisionCount,omitempty"`
	// FailedMachines are the machines whose last operation failed, those that are preserved left out.
	// +optional
	FailedMachines []*MachineSummary `json:"failedMachines,omitempty"`
}

// MachineDeploymentCondition is one aspect of a deployment's state.
type MachineDeploymentCondition struct {
	// Type names the aspect.
	Type MachineDeploymentConditionType `json:"type"`
	// Status is True, False or Unknown.
	Status corev1.ConditionStatus `json:"status"`
	// LastUpdateTime is when the condition was last written.
	// +optional
	LastUpdateTime metav1.Time `json:"lastUpdateTime,omitempty,omitzero"`
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
