package azure

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

// The names of clouds.
const (
	cloudPublic     = "AzurePublic"
	cloudGovernment = "AzureGovernment"
	cloudChina      = "AzureChina"
)

// Kinds of a MachineSet.
const (
	kindAvailabilitySet = "availabilityset"
	kindScaleSet        = "vmo"
)

// ParseProviderSpec reads and validates a provider spec. Unknown fields are ignored, because
// Machine Controller Manager ignores them: the VMs of a MachineClass with one must be found.
// GetUnknownFields reports them. Fields of another type are errors, and so is all that the cloud
// would reject in each case; the error lists all of them by their paths.
func ParseProviderSpec(raw []byte) (ProviderSpec, error) {
	spec, err := decode(raw)
	if err != nil {
		return ProviderSpec{}, err
	}
	if errs := validateMachineSet(spec.Properties.MachineSet); len(errs) > 0 {
		return ProviderSpec{}, errs.ToAggregate()
	}
	spec.translateMachineSet()
	if errs := validate(spec); len(errs) > 0 {
		return ProviderSpec{}, errs.ToAggregate()
	}
	return spec, nil
}

// place is where a class' VMs are. It is all that is needed to find and to delete a VM.
type place struct {
	cloud         string
	resourceGroup string
	disks         []DataDisk
	tags          map[string]string
}

// placeOf reads where a class' VMs are, also from a provider spec that ParseProviderSpec rejects: a
// spec that was broken after a VM was created hides no VM. What cannot be read is "".
func placeOf(raw []byte) place {
	spec, err := decode(raw)
	if err != nil {
		var only struct {
			ResourceGroup      string             `json:"resourceGroup"`
			CloudConfiguration CloudConfiguration `json:"cloudConfiguration"`
		}
		if json.Unmarshal(raw, &only) != nil {
			return place{cloud: cloudPublic}
		}
		spec.ResourceGroup, spec.CloudConfiguration = only.ResourceGroup, &only.CloudConfiguration
	}
	at := place{cloud: cloudPublic, resourceGroup: spec.ResourceGroup, disks: spec.Properties.StorageProfile.DataDisks, tags: spec.Tags}
	if spec.CloudConfiguration != nil && spec.CloudConfiguration.Name != "" {
		at.cloud = spec.CloudConfiguration.Name
	}
	return at
}

// decode reads JSON.
func decode(raw []byte) (ProviderSpec, error) {
	var spec ProviderSpec
	err := json.Unmarshal(raw, &spec)
	if mistyped, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		return ProviderSpec{}, fmt.Errorf("%s: a JSON %s; expected %s",
			strings.TrimSuffix("providerSpec."+mistyped.Field, "."), mistyped.Value, mistyped.Type)
	}
	if err != nil {
		return ProviderSpec{}, fmt.Errorf("providerSpec: %w; expected a JSON object", err)
	}
	return spec, nil
}

// translateMachineSet moves a deprecated MachineSet to the field that has replaced it, unless that
// is set.
func (s *ProviderSpec) translateMachineSet() {
	p := &s.Properties
	set := p.MachineSet
	if set == nil {
		return
	}
	p.MachineSet = nil
	switch {
	case set.Kind == kindAvailabilitySet && p.AvailabilitySet == nil:
		p.AvailabilitySet = &SubResource{ID: set.ID}
	case set.Kind == kindScaleSet && p.VirtualMachineScaleSet == nil:
		p.VirtualMachineScaleSet = &SubResource{ID: set.ID}
	}
}

// validateMachineSet returns what is wrong with a deprecated MachineSet.
func validateMachineSet(set *MachineSet) field.ErrorList {
	if set == nil || set.Kind == kindAvailabilitySet || set.Kind == kindScaleSet {
		return nil
	}
	at := field.NewPath("providerSpec", "properties", "machineSet", "kind")
	return field.ErrorList{field.NotSupported(at, set.Kind, []string{kindAvailabilitySet, kindScaleSet})}
}
