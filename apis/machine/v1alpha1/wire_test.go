package v1alpha1_test

import (
	"testing"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/wire"
)

func TestManifests(t *testing.T) { wire.Manifests(t, "testdata/manifests.yaml", v1alpha1.AddToScheme) }

func TestFieldNames(t *testing.T) {
	wire.Fields(t, "testdata/fields.golden",
		v1alpha1.MachineDeployment{}, v1alpha1.MachineSet{}, v1alpha1.Machine{}, v1alpha1.MachineClass{})
}
