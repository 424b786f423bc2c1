package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupName is the API group of all kinds in this package.
const GroupName = "fleet.machine.sapcloud.io"

// SchemeGroupVersion is group and version of all kinds in this package.
var SchemeGroupVersion = schema.GroupVersion{Group: GroupName, Version: "v1alpha1"}

// Resource returns the group-qualified name of a resource of this group, such as "machineconfigs".
func Resource(resource string) schema.GroupResource {
	return SchemeGroupVersion.WithResource(resource).GroupResource()
}

// Kind returns the group-qualified name of a kind of this group, such as "MachineConfig".
func Kind(kind string) schema.GroupKind {
	return SchemeGroupVersion.WithKind(kind).GroupKind()
}

// AddToScheme adds all kinds of this package to the scheme.
func AddToScheme(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(SchemeGroupVersion,
		&MachineConfig{}, &MachineConfigList{},
		&RenderedMachineConfig{}, &RenderedMachineConfigList{},
		&MachineConfigPool{}, &MachineConfigPoolList{},
		&ControllerConfig{}, &ControllerConfigList{},
		&KubeletConfig{}, &KubeletConfigList{},
	)
	metav1.AddToGroupVersion(scheme, SchemeGroupVersion)
	return nil
}
