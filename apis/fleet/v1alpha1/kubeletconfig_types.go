package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// KubeletConfig has settings of kubelets. All that select a pool are folded over the pool's
// default, the oldest first, into one generated MachineConfig of the pool.
//
// +genclient
// +genclient:nonNamespaced
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,path=kubeletconfigs,shortName=kc
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Accepted",type=string,JSONPath=`.status.conditions[?(@.type=="Accepted")].status`,description="Whether the settings are valid"
// +kubebuilder:printcolumn:name="Pools",type=string,JSONPath=`.status.pools[*].name`,description="Pools that it applies to"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`,description="Time since creation"
type KubeletConfig struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec has the settings.
	// +optional
	Spec KubeletConfigSpec `json:"spec,omitempty,omitzero"`
	// Status is the last observed state.
	// +optional
	Status KubeletConfigStatus `json:"status,omitempty,omitzero"`
}

// KubeletConfigList is a list of KubeletConfigs.
//
// +kubebuilder:object:root=true
type KubeletConfigList struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []KubeletConfig `json:"items"`
}

// KubeletConfigSpec has settings, and the pools that they are for.
type KubeletConfigSpec struct {
	// MachineConfigPoolSelector selects pools by their labels. Absent or empty, it selects none.
	// +optional
	MachineConfigPoolSelector *metav1.LabelSelector `json:"machineConfigPoolSelector,omitempty"`
	// KubeletConfig are fields of a KubeletConfiguration of kubelet.config.k8s.io/v1beta1, as an
	// object. A field that is not there keeps its value; false, 0 and empty are values, and null
	// removes the pool's value.
	// +optional
	// +kubebuilder:pruning:PreserveUnknownFields
	KubeletConfig runtime.RawExtension `json:"kubeletConfig,omitempty,omitzero"`
}

// KubeletConfigStatus is the last observed state of a KubeletConfig.
type KubeletConfigStatus struct {
	// ObservedGeneration is the generation of the spec that this status belongs to.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Pools are the selected pools, by name.
	// +optional
	// +listType=map
	// +listMapKey=name
	Pools []KubeletConfigPoolStatus `json:"pools,omitempty"`
	// Conditions, one of each type.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// KubeletConfigPoolStatus is the state of a KubeletConfig in one pool.
type KubeletConfigPoolStatus struct {
	// Name of the pool.
	Name string `json:"name"`
	// MachineConfig is the generated MachineConfig that the settings are in. Empty when they are in
	// none.
	// +optional
	MachineConfig string `json:"machineConfig,omitempty"`
	// Overridden are the fields for which a later KubeletConfig of the pool has another value, as
	// "field (by name)".
	// +optional
	// +listType=atomic
	Overridden []string `json:"overridden,omitempty"`
	// Message is why the settings are in no MachineConfig. Empty when they are in one.
	// +optional
	Message string `json:"message,omitempty"`
}
