//go:build e2e

package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/harness"
	"github.com/machine-controller-fleet/machine-controller-fleet/shard/ring"
)

// TestOnlyTheNamespace: a fleet serves one namespace of two, and sends no request about the other. It has other settings than the
// fleets of other tests: all roots of a namespace are in one slot, and the numbers of slots have four digits.
func TestOnlyTheNamespace(t *testing.T) {
	t.Parallel()
	const served, many = "served", 1024
	lab := startLab(t, "namespace", func(o *harness.Options) {
		o.Slots, o.FleetFlags = many, fmt.Sprintf("--namespace=%s --shard-by=namespace", served)
	})
	s := &space{T: t, lab: lab, name: served, seen: &memory{machines: map[types.UID]string{}}, ctx: lab.Context(t)}
	s.fourDigits(many)
	other := newSpace(t, lab, "other", "")
	other.deploy("pool", 1)
	s.must(lab.Prepare(t.Context(), s.name, ""))
	s.deploy("pool", 1)
	s.deploy("second", 1)
	s.running("pool", 1)
	s.running("second", 1)
	s.joined()
	slot := s.together(many, "pool", "second")
	s.remove("machinedeployments", "pool")
	s.remove("machinedeployments", "second")
	s.gone()

	remaining, err := other.api().MachineDeployments(other.name).Get(t.Context(), "pool", metav1.GetOptions{})
	s.must(err)
	sets, err := other.api().MachineSets(other.name).List(t.Context(), metav1.ListOptions{})
	s.must(err)
	if slot, labelled := remaining.Labels[v1alpha1.LabelSlot]; labelled || len(sets.Items) > 0 {
		t.Errorf("the other namespace: its MachineDeployment has slot %q and %d MachineSets", slot, len(sets.Items))
	}
	requests, err := lab.Requests(harness.AuditPosition{})
	s.must(err)
	watches, err := lab.Watches(harness.AuditPosition{})
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
			if r.IsFleet() && r.IsWrite() && !strings.Contains(r.UserAgent, slot) {
				t.Errorf("%s %s %s/%s was done under %q, want %q", r.User, r.Verb, r.Resource, r.Name, r.UserAgent, slot)
			}
		}
		itself := r.Resource == "namespaces" && strings.Contains(r.URI, "fieldSelector=metadata.name%3D"+served) // for its annotations
		if !slices.Contains(places, r.Namespace) && !itself {
			t.Errorf("a replica sent a request beyond its namespace: %s %s", r.Verb, r.URI)
		}
	}
	if inServed == 0 {
		t.Error("the audit log shows no request for the namespace that is served")
	}
}

// fourDigits waits until all slots are held, under names that sort. A new fleet creates so many Leases in seconds, and on a
// machine that starts other labs meanwhile in minutes.
func (s *space) fourDigits(slots int) {
	s.Helper()
	s.must(s.lab.WaitHeld(s.Context(), slots))
	holders, err := s.lab.Holders(s.Context())
	s.must(err)
	for slot := range slots {
		if name := fmt.Sprintf("fleet-slot-%04d", slot); holders[name] == "" {
			s.Errorf("slot Lease %s is missing, or has no holder", name)
		}
	}
}

// together waits until all objects of the namespace are in one slot, although the roots would be in several by their names. It
// returns the slot as in the User-Agent of its owner.
func (s *space) together(slots int, roots ...string) (ownership string) {
	s.Helper()
	byNamespace, err := ring.NewSlots(slots, ring.Namespace)
	s.must(err)
	byName, err := ring.NewSlots(slots, ring.Deployment)
	s.must(err)
	want, apart := byNamespace.Of(s.name, ""), map[int]bool{}
	for _, root := range roots {
		apart[byName.Of(s.name, root)] = true
	}
	if len(apart) < len(roots) || apart[want] {
		s.Fatalf("by their names the roots %v are in the slots %v: choose names that differ, and from %d", roots, apart, want)
	}
	s.labelled(4*len(roots), func(string) string { return fmt.Sprint(want) }) // the root, its set, a machine, its Node
	return fmt.Sprintf("slot=%d;", want)
}
