package plugin

import (
	"encoding/json"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/driver"
	driverv1 "github.com/machine-controller-fleet/machine-controller-fleet/driver/plugin/v1"
)

// toTarget returns a target as it is sent.
func toTarget(t driver.Target) (*driverv1.Target, error) {
	sent := &driverv1.Target{Secret: t.Secret, Adopt: t.Adopt, ControlCluster: t.ControlCluster}
	var err error
	if sent.Class, err = toClass(t.Class); err != nil || t.Machine == nil {
		return sent, err
	}
	machine := *t.Machine
	machine.ManagedFields = nil
	sent.Token = string(machine.UID)
	if sent.Machine, err = json.Marshal(&machine); err != nil {
		return nil, fmt.Errorf("encode the Machine: %w", err)
	}
	return sent, nil
}

// fromTarget returns a target that was received. Errors: what is no Machine or MachineClass, and a
// token that is not the Machine's UID.
func fromTarget(received *driverv1.Target) (driver.Target, error) {
	t := driver.Target{Secret: received.GetSecret(), Adopt: received.GetAdopt(), ControlCluster: received.GetControlCluster()}
	var err error
	if t.Class, err = fromClass(received.GetClass()); err != nil {
		return driver.Target{}, err
	}
	t.Machine = &v1alpha1.Machine{}
	if err := json.Unmarshal(received.GetMachine(), t.Machine); err != nil {
		return driver.Target{}, fmt.Errorf("decode the Machine: %w", err)
	}
	if string(t.Machine.UID) != received.GetToken() {
		return driver.Target{}, errors.New("expected the UID of the Machine as token, got another text")
	}
	return t, nil
}

// toClass returns a class as it is sent; nil for nil. The provider spec is sent next to the object,
// because it may be no JSON.
func toClass(class *v1alpha1.MachineClass) (*driverv1.MachineClass, error) {
	if class == nil {
		return nil, nil
	}
	object := *class
	object.ManagedFields, object.ProviderSpec = nil, runtime.RawExtension{}
	raw, err := json.Marshal(&object)
	if err != nil {
		return nil, fmt.Errorf("encode the MachineClass: %w", err)
	}
	return &driverv1.MachineClass{Object: raw, ProviderSpec: class.ProviderSpec.Raw}, nil
}

// fromClass returns a class that was received.
func fromClass(received *driverv1.MachineClass) (*v1alpha1.MachineClass, error) {
	class := &v1alpha1.MachineClass{}
	if err := json.Unmarshal(received.GetObject(), class); err != nil {
		return nil, fmt.Errorf("decode the MachineClass: %w", err)
	}
	class.ProviderSpec = runtime.RawExtension{Raw: received.GetProviderSpec()}
	return class, nil
}

// toScope returns a request about a scope as it is sent.
func toScope(req driver.ScopeRequest) (*driverv1.ScopeRequest, error) {
	class, err := toClass(req.Class)
	if err != nil {
		return nil, err
	}
	return &driverv1.ScopeRequest{Class: class, Secret: req.Secret, ControlCluster: req.ControlCluster}, nil
}

// fromScope returns a request about a scope that was received.
func fromScope(received *driverv1.ScopeRequest) (driver.ScopeRequest, error) {
	class, err := fromClass(received.GetClass())
	if err != nil {
		return driver.ScopeRequest{}, err
	}
	return driver.ScopeRequest{Class: class, Secret: received.GetSecret(), ControlCluster: received.GetControlCluster()}, nil
}

// toVM returns a VM as it is sent.
func toVM(vm driver.VM) *driverv1.VM {
	sent := &driverv1.VM{ProviderId: vm.ProviderID, NodeName: vm.NodeName, State: vm.State}
	for _, a := range vm.Addresses {
		sent.Addresses = append(sent.Addresses, &driverv1.Address{Type: string(a.Type), Address: a.Address})
	}
	return sent
}

// fromVM returns a VM that was received.
func fromVM(received *driverv1.VM) driver.VM {
	vm := driver.VM{ProviderID: received.GetProviderId(), NodeName: received.GetNodeName(), State: received.GetState()}
	for _, a := range received.GetAddresses() {
		vm.Addresses = append(vm.Addresses, corev1.NodeAddress{Type: corev1.NodeAddressType(a.GetType()), Address: a.GetAddress()})
	}
	return vm
}

// toVolumes returns volumes as they are sent.
func toVolumes(volumes []*corev1.PersistentVolumeSpec) (sent [][]byte, err error) {
	for _, volume := range volumes {
		raw, err := json.Marshal(volume)
		if err != nil {
			return nil, fmt.Errorf("encode a PersistentVolumeSpec: %w", err)
		}
		sent = append(sent, raw)
	}
	return sent, nil
}

// fromVolumes returns volumes that were received.
func fromVolumes(received [][]byte) (volumes []*corev1.PersistentVolumeSpec, err error) {
	for _, raw := range received {
		var volume *corev1.PersistentVolumeSpec
		if err := json.Unmarshal(raw, &volume); err != nil {
			return nil, fmt.Errorf("decode a PersistentVolumeSpec: %w", err)
		}
		volumes = append(volumes, volume)
	}
	return volumes, nil
}

// toResource returns a resource as it is sent.
func toResource(r driver.Resource) *driverv1.Resource {
	return &driverv1.Resource{
		Kind: string(r.Kind), Id: r.ID, Namespace: r.Namespace, Machine: r.Machine, MachineUid: string(r.MachineUID), NodeName: r.NodeName,
	}
}

// fromResource returns a resource that was received.
func fromResource(received *driverv1.Resource) driver.Resource {
	return driver.Resource{
		Kind: driver.ResourceKind(received.GetKind()), ID: received.GetId(), Namespace: received.GetNamespace(),
		Machine: received.GetMachine(), MachineUID: types.UID(received.GetMachineUid()), NodeName: received.GetNodeName(),
	}
}
