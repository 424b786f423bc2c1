//go:build e2e

package e2e

import (
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/harness"
)

// TestOnlyTheNamespace has a fleet serve one namespace of two, and ask for nothing of the other.
func TestOnlyTheNamespace(t *testing.T) {
	t.Parallel()
	const served = "served"
	lab := startLab(t, "namespace", func(o *harness.Options) { o.FleetFlags = "--namespace=" + served })
	other := newSpace(t, lab, "other", "")
	other.deploy("pool", 1)
	s := &space{T: t, lab: lab, name: served, seen: &memory{machines: map[types.UID]string{}}}
	s.must(lab.Prepare(t.Context(), s.name, ""))
	s.deploy("pool", 1)
	s.running("pool", 1)
	s.joined()
	s.remove("machinedeployments", "pool")
	s.gone()

	left, err := other.api().MachineDeployments(other.name).Get(t.Context(), "pool", metav1.GetOptions{})
	s.must(err)
	sets, err := other.api().MachineSets(other.name).List(t.Context(), metav1.ListOptions{})
	s.must(err)
	if slot, labelled := left.Labels[v1alpha1.LabelSlot]; labelled || len(sets.Items) > 0 {
		t.Errorf("the other namespace: its MachineDeployment has slot %q and %d MachineSets", slot, len(sets.Items))
	}
	requests, err := lab.Requests(harness.AuditMark{})
	s.must(err)
	watches, err := lab.Watches(harness.AuditMark{})
	s.must(err)
	places := []string{served, harness.FleetNamespace, metav1.NamespaceSystem} // the last for bootstrap tokens
	inServed := 0
	for _, r := range slices.Concat(requests, watches) {
		ofTarget := r.Resource == "nodes" || r.Resource == "pods" && strings.Contains(r.URI, "spec.nodeName") // Nodes, and what runs on them
		if !strings.HasPrefix(r.User, harness.FleetName+"-") || ofTarget {
			continue
		}
		if r.Namespace == served {
			inServed++
		}
		if !slices.Contains(places, r.Namespace) {
			t.Errorf("a replica asked for more than its namespace: %s %s", r.Verb, r.URI)
		}
	}
	if inServed == 0 {
		t.Error("the audit log shows nothing of the namespace that is served")
	}
}
