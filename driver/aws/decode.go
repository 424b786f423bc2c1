package aws

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
)

// ParseProviderSpec reads and validates a provider spec. Mistyped fields are errors that name the
// field; unknown ones are ignored, and the case of names does not matter, as in Machine Controller
// Manager. What only the cloud can check, such as whether a subnet exists, is not checked.
func ParseProviderSpec(raw []byte) (ProviderSpec, error) {
	spec, err := decode(raw)
	if err != nil {
		return ProviderSpec{}, err
	}
	if errs := validate(spec, field.NewPath("providerSpec")); len(errs) > 0 {
		return ProviderSpec{}, errs.ToAggregate()
	}
	return spec, nil
}

// decode reads a provider spec, and validates nothing.
func decode(raw []byte) (ProviderSpec, error) {
	if raw = bytes.TrimSpace(raw); len(raw) == 0 || raw[0] != '{' {
		return ProviderSpec{},
			errors.New("providerSpec is no object; expected one with at least ami, region, machineType, iam, networkInterfaces and tags")
	}
	var spec ProviderSpec
	if err := json.Unmarshal(raw, &spec); err != nil {
		return ProviderSpec{}, fmt.Errorf("providerSpec: %w", err)
	}
	return spec, nil
}

// regionOf returns the region of a class: that of its provider spec, also of one that is invalid
// otherwise, or else that of its node template. A class that was broken after its VMs were created
// must not hide them.
func regionOf(class *v1alpha1.MachineClass) (string, error) {
	var lenient struct {
		Region string `json:"region"`
	}
	_ = json.Unmarshal(class.ProviderSpec.Raw, &lenient) // "" when it has no region
	region := lenient.Region
	if region == "" && class.NodeTemplate != nil {
		region = class.NodeTemplate.Region
	}
	if !isRegion(region) {
		return "", fmt.Errorf("providerSpec.region is %q; expected a region such as eu-west-1", region)
	}
	return region, nil
}

// placementOf returns the placement of a machine; nil for none.
func placementOf(spec ProviderSpec, m *v1alpha1.Machine) (*Placement, error) {
	text := m.Spec.NodeTemplateSpec.Annotations[AnnotationPlacement]
	if spec.Placement != nil || text == "" {
		return spec.Placement, nil
	}
	var placement Placement
	if err := json.Unmarshal([]byte(text), &placement); err != nil {
		return nil, fmt.Errorf("spec.nodeTemplate.metadata.annotations[%s]: %w; expected a JSON object with fields such as groupName and tenancy",
			AnnotationPlacement, err)
	}
	return &placement, nil
}
