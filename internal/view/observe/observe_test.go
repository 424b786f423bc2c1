package observe_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/apiserver"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/view"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/view/observe"
)

func reader(s *apiserver.Server) observe.Reader {
	return observe.Reader{Machines: s.Machines(), Control: s.Core(), Target: s.Core(), FleetNamespace: "fleets", FleetName: "fleet"}
}

var everything = observe.Scope{Namespace: "n", Machines: true, Namespaces: true, Leases: true, Nodes: true, EventsOf: "m", PodsOf: "node"}

// TestReadReadsWhatTheScopeNames, and nothing else.
func TestReadReadsWhatTheScopeNames(t *testing.T) {
	meta := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: "n", Name: name} }
	s := apiserver.Recording(
		&v1alpha1.MachineDeployment{ObjectMeta: meta("d")}, &v1alpha1.MachineSet{ObjectMeta: meta("s")}, &v1alpha1.Machine{ObjectMeta: meta("m")},
		&v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: "other", Name: "m"}},
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "n"}},
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node"}},
		&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "fleets", Name: "fleet-leader"}},
		&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "fleets", Name: "of-another-program"}},
	)
	got, err := reader(s).Read(t.Context(), time.Time{}, everything)
	if err != nil || len(got.Missing) > 0 {
		t.Fatalf("%v, missing %+v", err, got.Missing)
	}
	if len(got.Deployments) != 1 || len(got.Sets) != 1 || len(got.Machines) != 1 ||
		len(got.Namespaces) != 1 || len(got.Nodes) != 1 || len(got.Leases) != 1 {
		t.Errorf("got %+v", got)
	}
	s.Forget()
	if _, err := reader(s).Read(t.Context(), time.Time{}, observe.Scope{Namespace: "n", Leases: true}); err != nil {
		t.Fatal(err)
	}
	if log := s.Log(); len(log) != 1 || log[0] != "list leases" {
		t.Errorf("requests for Leases only: %q", log)
	}
}

// TestForbiddenReadsAreMissing: what is refused is no error, except for the machines themselves,
// and the right is named.
func TestForbiddenReadsAreMissing(t *testing.T) {
	for pattern, right := range map[string]string{
		"list nodes":                "list nodes of the target cluster",
		"list leases":               "list leases.coordination.k8s.io in namespace fleets",
		"list events":               "list events.events.k8s.io in namespace n",
		"get namespaces":            "get namespaces",
		"list pods":                 "list pods of the target cluster",
		"list poddisruptionbudgets": "list poddisruptionbudgets.policy of the target cluster",
	} {
		s := apiserver.Recording(&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "fleets", Name: "fleet-leader"}},
			&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "n"}})
		s.Refuse(pattern, apierrors.NewForbidden(schema.GroupResource{}, "", nil))
		got, err := reader(s).Read(t.Context(), time.Time{}, everything)
		if err != nil || len(got.Missing) != 1 || got.Missing[0].Right != right {
			t.Errorf("%s: %v, missing %+v", pattern, err, got.Missing)
		}
	}
	s := apiserver.Recording()
	s.Refuse("list machines", apierrors.NewForbidden(schema.GroupResource{}, "", nil))
	_, err := reader(s).Read(t.Context(), time.Time{}, everything)
	if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "missing the right to list machines.machine.sapcloud.io in namespace n") {
		t.Errorf("got %v", err)
	}
}

// TestAbsenceOfATargetOrAFleetIsMissing: it does not look like a cluster without Nodes.
func TestAbsenceOfATargetOrAFleetIsMissing(t *testing.T) {
	r := reader(apiserver.Recording())
	r.Target, r.NoTarget = nil, "--no-target is set"
	got, err := r.Read(t.Context(), time.Time{}, observe.Scope{Leases: true, Nodes: true})
	if err != nil || !got.Misses(view.MissingNodes) || !got.Misses(view.MissingLeases) {
		t.Errorf("%v, missing %+v", err, got.Missing)
	}
}

// TestNodesElsewhereAreMissing: an assumed target cluster that has a Node of the machines is the
// right one; one that has none is not, and nor is any that was not assumed questioned.
func TestNodesElsewhereAreMissing(t *testing.T) {
	for name, tc := range map[string]struct {
		isAssumed, hasNode, want bool
	}{"it has one": {true, true, false}, "it has none": {true, false, true}, "it was named": {false, false, false}} {
		s := apiserver.Recording()
		node := map[bool]string{true: "node", false: "other"}[tc.hasNode]
		for plural, object := range map[string]map[string]any{
			"machines": {
				"apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "Machine",
				"metadata": map[string]any{"name": "m", "namespace": "n", "labels": map[string]any{"node": "node"}},
			},
			"nodes": {"apiVersion": "v1", "kind": "Node", "metadata": map[string]any{"name": node}},
		} {
			if _, err := s.Load(plural, object); err != nil {
				t.Fatal(err)
			}
		}
		r := reader(s)
		r.IsAssumed, r.Elsewhere = tc.isAssumed, "name it"
		all, err := r.Read(t.Context(), time.Time{}, observe.Scope{Namespace: "n", Machines: true, Nodes: true})
		one := view.Snapshot{}
		r.Node(t.Context(), &one, "node")
		if err != nil || all.Misses(view.MissingNodes) != tc.want || one.Misses(view.MissingNodes) != tc.want {
			t.Errorf("%s: %v, missing %+v and %+v", name, err, all.Missing, one.Missing)
		}
	}
}

// TestExplainKeepsOtherErrors: an error that is none of rights stays as it is.
func TestExplainKeepsOtherErrors(t *testing.T) {
	other := errors.New("connection refused")
	if got := observe.Explain(other, observe.Right{Verb: "get", Resource: "x"}); !errors.Is(got, other) || got.Error() != other.Error() {
		t.Errorf("got %v", got)
	}
	if observe.Explain(nil, observe.Right{}) != nil {
		t.Error("no error is explained")
	}
}
