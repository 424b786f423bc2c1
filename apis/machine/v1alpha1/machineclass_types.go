package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// MachineClass describes how VMs are created: the provider, its own spec, and the Secrets with
// credentials and user data. It has neither spec nor status; its fields are at the top level.
//
// +genclient
// +genclient:noStatus
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Namespaced,path=machineclasses,shortName=mcc
// +kubebuilder:printcolumn:name="Provider",type=string,priority=1,JSONPath=`.provider`,description="Name of the driver"
// +kubebuilder:printcolumn:name="Instance-Type",type=string,priority=1,JSONPath=`.nodeTemplate.instanceType`,description="The cloud's name of the kind of VM"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`,description="Time since creation"
// +kubebuilder:printcolumn:name="Unknown-Fields",type=string,priority=1,JSONPath=`.metadata.annotations.fleet\.machine\.sapcloud\.io/unknown-fields`,description="Fields of the provider spec that the driver ignores"
// +kubebuilder:printcolumn:name="Finalizers",type=string,priority=1,JSONPath=`.metadata.finalizers`,description="Has the fleet's finalizer while Machines use the class"
type MachineClass struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// NodeTemplate describes the Nodes of this class, for the cluster-autoscaler to know them before
	// there is one. Nil means that they are not known.
	// +optional
	// +kubebuilder:pruning:PreserveUnknownFields
	NodeTemplate *NodeTemplate `json:"nodeTemplate,omitempty"`
	// CredentialsSecretRef names the Secret with the credentials for the cloud. Without it they are
	// the data of SecretRef; the two are never mixed. Its key userData, if it has one, takes
	// precedence over that of SecretRef. A Secret of another namespace has to name the class' own in
	// its annotation fleet.machine.sapcloud.io/shared-with.
	// +optional
	CredentialsSecretRef *corev1.SecretReference `json:"credentialsSecretRef,omitempty"`
	// ProviderSpec is the provider's own description of a VM. Only the driver knows its schema.
	// +kubebuilder:pruning:PreserveUnknownFields
	ProviderSpec runtime.RawExtension `json:"providerSpec"`
	// Provider names the driver.
	// +optional
	Provider string `json:"provider,omitempty"`
	// SecretRef names the Secret with the user data (key userData) and, unless there is a
	// CredentialsSecretRef, the credentials for the cloud. A Secret of another namespace has to name
	// the class' own in its annotation fleet.machine.sapcloud.io/shared-with.
	// +optional
	SecretRef *corev1.SecretReference `json:"secretRef,omitempty"`
}

// MachineClassList is a list of MachineClasses.
//
// +kubebuilder:object:root=true
type MachineClassList struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []MachineClass `json:"items"`
}

// NodeTemplate describes the Nodes of a class.
type NodeTemplate struct {
	// Capacity that a Node will have. The keys cpu, gpu and memory must be there.
	// +kubebuilder:validation:XValidation:rule=`["cpu", "gpu", "memory"].all(k, k in self)`,message="cpu, gpu and memory are required"
	Capacity corev1.ResourceList `json:"capacity"`
	// VirtualCapacity is added to the capacity of every Node of the class, for resources that no
	// kubelet reports.
	// +optional
	VirtualCapacity corev1.ResourceList `json:"virtualCapacity,omitempty"`
	// InstanceType is the cloud's name of the kind of VM.
	// +kubebuilder:validation:MinLength=1
	InstanceType string `json:"instanceType"`
	// Region of the VMs.
	// +kubebuilder:validation:MinLength=1
	Region string `json:"region"`
	// Zone of the VMs.
	// +kubebuilder:validation:MinLength=1
	Zone string `json:"zone"`
	// Architecture of the VMs' processors, such as amd64.
	// +optional
	Architecture *string `json:"architecture,omitempty"`
}
