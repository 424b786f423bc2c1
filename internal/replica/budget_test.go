package replica

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
)

// One machine of each of four MachineDeployments becomes unhealthy, in a fleet of three replicas
// with a deletion budget of one: one machine is replaced, whichever replicas hold the
// MachineDeployments. When the Namespace has no limit any more all are.
func TestDeletionBudgetIsOneForAllReplicas(t *testing.T) {
	o := replicaOptions()
	o.Safety.MaxDeletions, o.Health.Timeout = 1, time.Minute
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newTrial(t, o, 1, nil)
		defer r.end()
		r.createUnmanaged()
		r.createClass("a")
		for i := range 4 {
			r.putRoot("a", fmt.Sprint("root-", i), 3)
		}
		for i := range 3 {
			r.start(fmt.Sprint("fleet-", i))
		}
		if !r.run(3*time.Minute, func() bool { return r.missing() == "" }) {
			t.Fatalf("%s %s", r.wrong, r.missing())
		}
		unhealthy := r.breakOneOfEach()
		r.run(atRest(4*time.Minute, 10*time.Minute), nil)
		if left := r.left(unhealthy); len(unhealthy) != 4 || left != 3 {
			t.Errorf("%d of %d unhealthy machines are left within an hour, want 3 of 4", left, len(unhealthy))
		}
		if n := r.rootsHeld(); n != 3 {
			t.Errorf("%d MachineDeployments have the condition DeletionsHeld with the reason DeletionBudget, want 3", n)
		}
		r.put(r.control, "namespaces", map[string]any{
			"apiVersion": "v1", "kind": "Namespace",
			"metadata": map[string]any{"name": "a", "annotations": map[string]any{v1alpha1.AnnotationMaxDeletions: "0"}},
		})
		r.run(5*time.Minute, func() bool { return r.left(unhealthy) == 0 && r.rootsHeld() == 0 })
		if left, held := r.left(unhealthy), r.rootsHeld(); left > 0 || held > 0 || !r.fine() {
			t.Errorf("%d unhealthy machines and %d conditions are left without a limit; %s", left, held, r.wrong)
		}
	})
}

// breakOneOfEach makes a Node of each MachineSet unhealthy, and returns the names of their
// machines.
func (t *trial) breakOneOfEach() (machines map[string]bool) {
	sets := map[string]bool{}
	machines = map[string]bool{}
	for _, m := range t.control.List("machines") {
		owners := m.GetOwnerReferences()
		if len(owners) != 1 || sets[owners[0].Name] {
			continue
		}
		sets[owners[0].Name], machines[m.GetName()] = true, true
		t.target.Edit("nodes", "", m.GetLabels()[v1alpha1.LabelNode], func(u *unstructured.Unstructured) {
			// It is an object.
			_ = unstructured.SetNestedSlice(u.Object, []any{map[string]any{"type": "Ready", "status": "False"}}, "status", "conditions")
		})
	}
	return machines
}

// left returns how many of the machines are there.
func (t *trial) left(machines map[string]bool) (n int) {
	for _, m := range t.control.List("machines") {
		if machines[m.GetName()] {
			n++
		}
	}
	return n
}

// rootsHeld returns how many MachineDeployments wait for the deletion budget.
func (t *trial) rootsHeld() (n int) {
	for _, d := range t.control.List("machinedeployments") {
		conditions, _, _ := unstructured.NestedSlice(d.Object, "status", "conditions")
		for _, c := range conditions {
			is, _ := c.(map[string]any)
			if is["type"] == string(v1alpha1.MachineDeploymentDeletionsHeld) && is["reason"] == v1alpha1.ReasonDeletionBudget {
				n++
			}
		}
	}
	return n
}
