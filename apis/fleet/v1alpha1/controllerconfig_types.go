package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// ControllerConfig has the values that templates of MachineConfigs are filled with. There is one,
// named machine-config-controller.
//
// +genclient
// +genclient:nonNamespaced
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,path=controllerconfigs
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Completed",type=string,JSONPath=`.status.conditions[?(@.type=="TemplateControllerCompleted")].status`,description="Whether all templates are rendered"
// +kubebuilder:printcolumn:name="Failing",type=string,JSONPath=`.status.conditions[?(@.type=="TemplateControllerFailing")].status`,description="Whether a template cannot be rendered"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`,description="Time since creation"
// +kubebuilder:validation:XValidation:rule="self.metadata.name == 'machine-config-controller'",message="must have the name machine-config-controller: there is one"
type ControllerConfig struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec has the values.
	// +optional
	Spec ControllerConfigSpec `json:"spec,omitempty,omitzero"`
	// Status is the last observed state.
	// +optional
	Status ControllerConfigStatus `json:"status,omitempty,omitzero"`
}

// ControllerConfigName is the name of the only ControllerConfig.
const ControllerConfigName = "machine-config-controller"

// ControllerConfigList is a list of ControllerConfigs.
//
// +kubebuilder:object:root=true
type ControllerConfigList struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []ControllerConfig `json:"items"`
}

// ControllerConfigSpec has values for templates.
type ControllerConfigSpec struct {
	// Roles are the roles that templates are rendered for: one MachineConfig for each template and
	// role.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=63
	Roles []string `json:"roles,omitempty"`
	// ClusterDNS are the addresses of the DNS service of the cluster.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=8
	ClusterDNS []string `json:"clusterDNS,omitempty"`
	// ClusterDomain is the domain of the services of the cluster.
	// +optional
	ClusterDomain string `json:"clusterDomain,omitempty"`
	// CABundles are certificates that Nodes trust.
	// +optional
	// +listType=map
	// +listMapKey=name
	CABundles []CABundle `json:"caBundles,omitempty"`
	// Images are references of container images by their names in templates.
	// +optional
	Images map[string]string `json:"images,omitempty"`
	// OSImageURL is the image of the operating system of all Nodes whose MachineConfigs name no other.
	// +optional
	// +kubebuilder:validation:MaxLength=2048
	OSImageURL string `json:"osImageURL,omitempty"`
	// PullSecretRef names a Secret of type kubernetes.io/dockerconfigjson with which Nodes pull
	// images.
	// +optional
	PullSecretRef *corev1.SecretReference `json:"pullSecretRef,omitempty"`
	// Values are all other values, as an object.
	// +optional
	// +kubebuilder:pruning:PreserveUnknownFields
	Values runtime.RawExtension `json:"values,omitempty,omitzero"`
}

// CABundle is a set of certificates.
type CABundle struct {
	// Name of the bundle, unique among those of the ControllerConfig.
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`
	Name string `json:"name"`
	// PEM are the certificates.
	PEM string `json:"pem"`
}

// ControllerConfigStatus is the last observed state of the templates.
type ControllerConfigStatus struct {
	// ObservedGeneration is the generation of the spec that this status belongs to.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Conditions, one of each type.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}
