package replica

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/apiserver"
)

// TestZoneOutageOfTwoReplicasReplacesNothing: all machines of a zone, of four MachineDeployments,
// become not Ready, and no machine is replaced, also when a replica is killed meanwhile: each
// counts the machines of the others. Another zone is not affected. When the zone has recovered, one
// of its machines dies, and that is replaced.
func TestZoneOutageOfTwoReplicasReplacesNothing(t *testing.T) {
	o := replicaOptions()
	o.Health.Timeout = time.Minute
	synctest.Test(t, func(t *testing.T) {
		r := newTrial(t, o, 1, nil)
		defer r.end()
		r.createUnmanaged()
		r.createClass("a")
		r.createClassIn("a", "dark", "z1")
		r.createClassIn("a", "bright", "z2")
		var dark []string
		for i := range 4 {
			dark = append(dark, r.putRootOf("a", fmt.Sprint("d-", i), "dark", 2).name)
		}
		bright := r.putRootOf("a", "elsewhere", "bright", 9).name
		r.start("fleet-0")
		r.start("fleet-1")
		r.until("17 machines run", func() bool { return r.missing() == "" })
		r.run(time.Minute, nil) // each replica has the counts of the other
		before := r.uids()

		r.setReady("False", r.namesOf(dark...)...)
		r.until("the circuit breaker of the zone is open for all four", func() bool {
			return !slices.ContainsFunc(dark, func(root string) bool { return r.breakerOf("a", root) != v1alpha1.ReasonZoneNotReady })
		})
		r.ownerOf("a", dark[0]).crash()
		r.run(10*time.Minute, nil)
		if got := r.uids(); !maps.Equal(got, before) {
			t.Errorf("in the outage machines were replaced: %v, want %v", got, before)
		}
		if reason := r.breakerOf("a", bright); reason != "" {
			t.Errorf("the circuit breaker of the other zone is open: %s", reason)
		}
		r.setReady("True", r.namesOf(dark...)...)
		r.until("all run, and the circuit breaker is closed", func() bool {
			return r.missing() == "" && !slices.ContainsFunc(dark, func(root string) bool { return r.breakerOf("a", root) != "" })
		})

		victim := r.namesOf(dark[0])[0]
		r.setReady("False", victim)
		r.until("the dead machine is replaced", func() bool { return r.uids()[victim] == "" && r.missing() == "" })
		after := r.uids()
		maps.DeleteFunc(before, func(name, uid string) bool { return after[name] == uid })
		if _, is := before[victim]; !is || len(before) != 1 {
			t.Errorf("%v were replaced, want %s alone", slices.Collect(maps.Keys(before)), victim)
		}
	})
}

// createClassIn creates a class of a zone, with the Secret of the namespace.
func (t *trial) createClassIn(namespace, name, zone string) {
	t.put(t.control, "machineclasses", map[string]any{
		"apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "MachineClass", "metadata": map[string]any{"namespace": namespace, "name": name},
		"provider": "simulated", "providerSpec": map[string]any{}, "secretRef": map[string]any{"name": "small"},
		"nodeTemplate": map[string]any{
			"capacity": map[string]any{"cpu": "1", "gpu": "0", "memory": "1Gi"}, "instanceType": "small", "region": "r", "zone": zone,
		},
	})
}

// putRootOf creates a MachineDeployment of a class.
func (t *trial) putRootOf(namespace, name, class string, replicas int) *root {
	r := t.putRoot(namespace, name, replicas)
	t.control.Edit("machinedeployments", namespace, name, func(u *unstructured.Unstructured) {
		_ = unstructured.SetNestedField(u.Object, class, "spec", "template", "spec", "class", "name") // it is an object
	})
	return r
}

// uids returns the UIDs of all machines, by name.
func (t *trial) uids() map[string]string {
	found := map[string]string{}
	for _, m := range t.control.List("machines") {
		found[m.GetName()] = string(m.GetUID())
	}
	return found
}

// namesOf names the machines of some roots.
func (t *trial) namesOf(roots ...string) (names []string) {
	for _, m := range t.machinesOf(roots...) {
		names = append(names, m.Name)
	}
	return names
}

// setReady sets the condition Ready of the Nodes of some machines.
func (t *trial) setReady(status string, machines ...string) {
	for _, name := range machines {
		t.target.Edit("nodes", "", name, func(u *unstructured.Unstructured) {
			// It is an object.
			_ = unstructured.SetNestedSlice(u.Object, []any{map[string]any{"type": "Ready", "status": status}}, "status", "conditions")
		})
	}
}

// breakerOf returns the reason for which a MachineDeployment reports an open circuit breaker; ""
// for none.
func (t *trial) breakerOf(namespace, name string) string {
	return reasonOf(t.control.Get("machinedeployments", namespace, name), string(v1alpha1.MachineDeploymentCircuitBreakerOpen), "True")
}

// reasonOf returns the reason of a condition of a MachineDeployment or MachineSet; "" when it does
// not have it in that status.
func reasonOf(o *apiserver.Object, condition, status string) string {
	ofDeployment, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
	ofSet, _, _ := unstructured.NestedSlice(o.Object, "status", "machineSetCondition")
	for _, c := range append(ofDeployment, ofSet...) {
		if is, _ := c.(map[string]any); is["type"] == condition && is["status"] == status {
			return fmt.Sprint(is["reason"])
		}
	}
	return ""
}
