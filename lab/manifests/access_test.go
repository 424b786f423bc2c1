package manifests

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"os"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
)

// rolesOf returns the roles of manifests.
func rolesOf(t *testing.T, manifests []byte) (roles []rbacv1.ClusterRole) {
	t.Helper()
	for documents := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(manifests))); ; {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			return roles
		}
		var role rbacv1.ClusterRole
		if err := errors.Join(err, yaml.Unmarshal(document, &role)); err != nil {
			t.Fatal(err)
		}
		if role.Kind == "ClusterRole" || role.Kind == "Role" {
			roles = append(roles, role)
		}
	}
}

// Without this right nothing that a deletion budget limits would begin.
func TestTheFleetMayWriteTheLeaseOfDeletionBudgets(t *testing.T) {
	granted := map[string]bool{}
	for _, role := range rolesOf(t, fleetControl) {
		if role.Kind != "ClusterRole" {
			continue
		}
		for _, rule := range role.Rules {
			named := len(rule.ResourceNames) == 0 || slices.Contains(rule.ResourceNames, v1alpha1.LeaseDeletions)
			for _, verb := range rule.Verbs {
				granted[verb] = granted[verb] || named && slices.Contains(rule.Resources, "leases")
			}
		}
	}
	for _, verb := range []string{"get", "create", "update"} {
		if !granted[verb] {
			t.Errorf("no ClusterRole grants %s of Lease %s", verb, v1alpha1.LeaseDeletions)
		}
	}
}

// The API server's error for a patch that cannot be applied has the whole object, before any admission policy is asked: to patch is to
// read.
func TestWhatMayBePatchedMayBeRead(t *testing.T) {
	t.Parallel()
	manifests := map[string][]byte{"control": FleetControl(), "target": FleetTarget()}
	for _, serves := range []string{"all", "kube-system", "tenant"} {
		rendered, err := os.ReadFile("testdata/one-cluster-" + serves + ".yaml")
		if err != nil {
			t.Fatal(err)
		}
		manifests[serves] = rendered
	}
	patchable := 0
	for name, content := range manifests {
		for _, role := range rolesOf(t, content) {
			readable := map[string]bool{}
			for _, rule := range role.Rules {
				for _, resource := range rule.Resources {
					readable[resource] = readable[resource] || len(rule.ResourceNames) == 0 && (slices.Contains(rule.Verbs, "get") || slices.Contains(rule.Verbs, "list"))
				}
			}
			for _, rule := range role.Rules {
				if !slices.Contains(rule.Verbs, "patch") {
					continue
				}
				for _, resource := range rule.Resources {
					patchable++
					if object, _, _ := strings.Cut(resource, "/"); !readable[object] {
						t.Errorf("%s: %s %s may patch %s, and not read %s", name, role.Kind, role.Name, resource, object)
					}
				}
			}
		}
	}
	if patchable == 0 {
		t.Error("no role may patch anything")
	}
}
