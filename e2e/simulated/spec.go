package simulated

import (
	"bytes"
	"errors"
	"fmt"
	"strings"

	"sigs.k8s.io/json"

	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/simulated/cloudapi"
)

// Tags of every VM that the driver creates. A provider spec cannot set them.
const (
	// TagCluster is the namespace of the VM's MachineClass and Machine.
	TagCluster = "cluster"
	// TagMachine is the name of the VM's Machine.
	TagMachine = "machine"
	// TagMachineUID is the UID of the VM's Machine.
	TagMachineUID = "machine-uid"
	// TagControlCluster is the ID of the control cluster. A VM that was created while the ID was not
	// known does not have it.
	TagControlCluster = "control-cluster"
)

// ProviderSpec is MachineClass.providerSpec for the simulated cloud. All fields are optional; the
// cloud has a default for each field (see cloudapi), so that an empty object, or none, is a valid
// spec.
type ProviderSpec struct {
	Region       string            `json:"region,omitempty"`
	Zone         string            `json:"zone,omitempty"`
	InstanceType string            `json:"instanceType,omitempty"`
	Image        string            `json:"image,omitempty"`
	Network      string            `json:"network,omitempty"`
	Tags         map[string]string `json:"tags,omitempty"`
	// Boot is "simulated" (the default) or "kubelet".
	Boot cloudapi.BootMode `json:"boot,omitempty"`
	// DataVolumes are created and removed with the VM.
	DataVolumes []cloudapi.DataVolume `json:"dataVolumes,omitempty"`
	// SourceDestCheck is set after the create, by InitializeMachine; nil keeps the cloud's default.
	SourceDestCheck *bool `json:"sourceDestCheck,omitempty"`
}

// specFields lists the fields, for messages.
const specFields = "region, zone, instanceType, image, network, tags, boot, dataVolumes, sourceDestCheck"

// ParseProviderSpec reads a provider spec. Unknown, duplicate and mistyped fields are errors that
// name the field. What only the cloud can check, such as whether a zone exists, is not checked.
func ParseProviderSpec(raw []byte) (ProviderSpec, error) {
	var spec ProviderSpec
	if raw = bytes.TrimSpace(raw); len(raw) == 0 || bytes.Equal(raw, []byte("null")) {
		return spec, nil
	}
	if raw[0] != '{' {
		return ProviderSpec{}, fmt.Errorf("providerSpec is no object; its fields are %s", specFields)
	}
	strict, err := json.UnmarshalStrict(raw, &spec)
	if err != nil {
		return ProviderSpec{}, fmt.Errorf("providerSpec: %w", err)
	}
	if len(strict) > 0 {
		return ProviderSpec{}, fmt.Errorf("providerSpec: %w; its fields are %s", errors.Join(strict...), specFields)
	}
	return spec, spec.validate()
}

func (s ProviderSpec) validate() error {
	switch s.Boot {
	case "", cloudapi.BootSimulated, cloudapi.BootKubelet:
	default:
		return fmt.Errorf("providerSpec.boot is %q; expected %q or %q", s.Boot, cloudapi.BootSimulated, cloudapi.BootKubelet)
	}
	for _, reserved := range []string{TagCluster, TagMachine, TagMachineUID, TagControlCluster} {
		if _, set := s.Tags[reserved]; set {
			return fmt.Errorf("providerSpec.tags: %q is set by the driver; choose another name", reserved)
		}
	}
	for key := range s.Tags {
		if key == "" || strings.Contains(key, "=") {
			return fmt.Errorf("providerSpec.tags: %q is no key; expected one that is not empty and has no =", key)
		}
	}
	for i, v := range s.DataVolumes {
		if v.Name == "" || v.SizeGiB <= 0 {
			return fmt.Errorf("providerSpec.dataVolumes[%d]: expected a name and a positive sizeGiB, got %q and %d", i, v.Name, v.SizeGiB)
		}
	}
	return nil
}
