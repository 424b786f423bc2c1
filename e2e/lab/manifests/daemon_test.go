package manifests

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	rbacv1 "k8s.io/api/rbac/v1"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"
)

// The chart grants daemons what the manifest grants with which they are installed without it.
func TestAccessOfDaemons(t *testing.T) {
	documented, err := os.ReadFile("../../../docs/examples/machine-config-daemon/access.yaml")
	if err != nil {
		t.Fatal(err)
	}
	want := rulesOfDaemons(t, documented)
	if diff := cmp.Diff(want, rulesOfDaemons(t, fleetTarget)); diff != "" || len(want) == 0 {
		t.Errorf("rules (-documented +chart):\n%s", diff)
	}
}

// rulesOfDaemons returns the rules of the ClusterRole of machine-config-daemons.
func rulesOfDaemons(t *testing.T, manifest []byte) []rbacv1.PolicyRule {
	t.Helper()
	documents := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(manifest)))
	for {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			return nil
		}
		var role rbacv1.ClusterRole
		if err := errors.Join(err, yaml.Unmarshal(document, &role)); err != nil {
			t.Fatal(err)
		}
		if role.Kind == "ClusterRole" && strings.HasSuffix(role.Name, "machine-config-daemon") {
			return role.Rules
		}
	}
}
