package manifests

import (
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// The lab gives daemons the access that the documentation grants them.
func TestAccessOfDaemonsIsTheDocumentedOne(t *testing.T) {
	documented, err := os.ReadFile("../../docs/examples/machine-config-daemon/access.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(documented), string(MachineConfigDaemon())); diff != "" {
		t.Errorf("access (-documented +lab):\n%s", diff)
	}
}
