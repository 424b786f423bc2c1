//go:build e2e

package e2e

import (
	"errors"
	"testing"

	"k8s.io/client-go/dynamic"

	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/harness"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/mcmcrds"
)

// TestMainJobOnMCMsDefinitions does the main job with the definitions of Machine Controller
// Manager, in a separate lab: they replace the fleet's while no object exists.
func TestMainJobOnMCMsDefinitions(t *testing.T) {
	t.Parallel()
	lab := startLab(t, "mcms-definitions")
	client, err1 := dynamic.NewForConfig(lab.Config)
	definitions, err2 := mcmcrds.Lenient()
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(mcmcrds.Replace(t.Context(), client, definitions), lab.Restart(t.Context(), harness.Fleet)); err != nil {
		t.Fatal(err)
	}
	s := newSpace(t, lab, "main-job", "")
	s.lenient = true
	s.mainJob()
}
