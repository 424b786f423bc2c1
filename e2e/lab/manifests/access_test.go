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

// The API server's answer to a write, and its error for one that cannot be applied, may have the
// whole object, before any admission policy is asked: to write is to read. A create is refused
// where an object is.
func TestWhatMayBeWrittenMayBeRead(t *testing.T) {
	t.Parallel()
	others := map[string]string{
		"delete secrets": "a policy rejects it for all but bootstrap tokens of machines",
		"update events":  "an update has the whole object in its request, and no answer has another",
	}
	manifests := map[string][]byte{"control": FleetControl(), "target": FleetTarget()}
	for _, serves := range []string{"all", "kube-system", "tenant"} {
		rendered, err := os.ReadFile("testdata/one-cluster-" + serves + ".yaml")
		if err != nil {
			t.Fatal(err)
		}
		manifests[serves] = rendered
	}
	met := map[string]bool{}
	for name, content := range manifests {
		for _, role := range rolesOf(t, content) {
			for _, rule := range role.Rules {
				for _, verb := range rule.Verbs {
					for _, resource := range rule.Resources {
						object, _, _ := strings.Cut(resource, "/")
						write := verb + " " + object
						if slices.Contains([]string{"get", "list", "watch", "create"}, verb) {
							continue
						}
						if met[write] = true; !mayRead(role, object, rule.ResourceNames) && others[write] == "" {
							t.Errorf("%s: %s %s may %s, and not read %s", name, role.Kind, role.Name, write, object)
						}
					}
				}
			}
		}
	}
	for _, write := range []string{
		"patch machines", "patch nodes", "update leases", "update secrets", "delete pods", "delete secrets", "update events",
	} {
		if !met[write] {
			t.Errorf("no role may %s: the test tests nothing", write)
		}
	}
}

// mayRead reports whether a role grants to read an object of the names, of any name without them.
func mayRead(role rbacv1.ClusterRole, object string, names []string) bool {
	return slices.ContainsFunc(role.Rules, func(rule rbacv1.PolicyRule) bool {
		return slices.Contains(rule.Resources, object) && (slices.Contains(rule.Verbs, "get") || slices.Contains(rule.Verbs, "list")) &&
			(len(rule.ResourceNames) == 0 || len(names) > 0 && slices.Equal(rule.ResourceNames, names))
	})
}
