package v1alpha1_test

import (
	"testing"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/fleet/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/wire"
)

func TestManifests(t *testing.T) { wire.Manifests(t, "testdata/manifests.yaml", v1alpha1.AddToScheme) }

func TestFieldNames(t *testing.T) {
	wire.Fields(t, "testdata/fields.golden",
		v1alpha1.MachineConfig{}, v1alpha1.RenderedMachineConfig{}, v1alpha1.MachineConfigPool{},
		v1alpha1.ControllerConfig{}, v1alpha1.KubeletConfig{})
}
