package v1alpha1_test

import (
	"flag"
	"testing"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/fleet/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/wire"
)

var rewrite = flag.Bool("rewrite", false, "write testdata/fields.golden anew; every line that changes breaks a client")

func TestManifests(t *testing.T) { wire.Manifests(t, "testdata/manifests.yaml", v1alpha1.AddToScheme) }

func TestFieldNames(t *testing.T) {
	wire.Fields(t, "testdata/fields.golden", *rewrite,
		v1alpha1.MachineConfig{}, v1alpha1.RenderedMachineConfig{}, v1alpha1.MachineConfigPool{}, v1alpha1.ControllerConfig{}, v1alpha1.KubeletConfig{})
}
