package replica

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	fleetv1alpha1 "github.com/machine-controller-fleet/machine-controller-fleet/apis/fleet/v1alpha1"
)

const poolsOfTrial = 8

func (t *trial) putConfig(resource, kind, name string, labels, spec map[string]any) {
	t.Helper()
	_, err := t.target.Put(resource, map[string]any{
		"apiVersion": "fleet.machine.sapcloud.io/v1alpha1", "kind": kind, "metadata": map[string]any{"name": name, "labels": labels},
		"spec": spec,
	})
	if err != nil {
		t.Fatal(err)
	}
}

// putPools creates pools, one MachineConfig for all of them, a KubeletConfig for all, and a
// ControllerConfig.
func (t *trial) putPools(argument string) {
	t.Helper()
	role := map[string]any{"matchLabels": map[string]any{"role": "a"}}
	for i := range poolsOfTrial {
		spec := map[string]any{"machineConfigSelector": role, "nodeSelector": role}
		if i%2 == 1 {
			spec = map[string]any{
				"machineConfigSelector": role, "machineRef": map[string]any{"kind": "MachineDeployment", "namespace": "a", "name": fmt.Sprint("d", i)},
			}
		}
		t.putConfig("machineconfigpools", "MachineConfigPool", fmt.Sprint("p", i), map[string]any{"size": "small"}, spec)
	}
	t.putConfig("machineconfigs", "MachineConfig", "00-a", map[string]any{"role": "a"}, map[string]any{"kernelArguments": []any{argument}})
	t.putConfig("kubeletconfigs", "KubeletConfig", "k", nil, map[string]any{
		"machineConfigPoolSelector": map[string]any{"matchLabels": map[string]any{"size": "small"}},
		"kubeletConfig":             map[string]any{"maxPods": int64(50)},
	})
	t.putConfig("controllerconfigs", "ControllerConfig", "machine-config-controller", nil, map[string]any{"roles": []any{"a"}})
}

// targets returns the targets of the pools that have one and were rendered of so many
// MachineConfigs, by the pool's name.
func (t *trial) targets(sources int) map[string]string {
	all := map[string]string{}
	for _, pool := range t.target.List("machineconfigpools") {
		target, _, _ := unstructured.NestedString(pool.Object, "status", "currentMachineConfig")
		of, _, _ := unstructured.NestedSlice(pool.Object, "status", "sources")
		if target != "" && len(of) == sources {
			all[pool.GetName()] = target
		}
	}
	return all
}

// isTrue reports whether a condition of an object in the target cluster is True.
func (t *trial) isTrue(resource, name, condition string) bool {
	found := t.target.Get(resource, "", name)
	if found == nil {
		return false
	}
	conditions, _, _ := unstructured.NestedSlice(found.Object, "status", "conditions")
	return slices.ContainsFunc(conditions, func(one any) bool {
		c, _ := one.(map[string]any)
		return c["type"] == condition && c["status"] == "True"
	})
}

// TestPoolsAreServedAcrossTakeOvers: two replicas share pools. One is killed between the creation
// of RenderedMachineConfigs and the write of the status, another hands over in the middle of a
// change. Every pool ends with one target for each configuration, and everything that is generated
// is there. The oracle checks that no slot is written for by two.
func TestPoolsAreServedAcrossTakeOvers(t *testing.T) {
	o := replicaOptions(func(o *Options) { o.Configs.Enabled = true })
	t.Parallel()
	for _, seed := range []uint64{1, 2} { // of one, and of two clusters
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newTrial(t, o, seed, nil)
				defer r.end()
				until := func(what string, cond func() bool) {
					t.Helper()
					if !r.run(10*time.Minute, cond) {
						t.Fatalf("%s: does not come true: %v %s", what, r.targets(2), r.wrong)
					}
				}
				r.start("fleet-0")
				r.start("fleet-1")
				r.run(30*time.Second, nil)
				noStatus := r.network.disturb(&disturbance{
					name: "status of pools is not written", there: true, refuses: true,
					of: func(q request) bool {
						return q.method == http.MethodPatch && strings.Contains(q.path, "/machineconfigpools/")
					},
				})
				r.putPools("one")
				until("all is rendered", func() bool { return len(r.target.List("renderedmachineconfigs")) >= poolsOfTrial })
				if n := len(r.targets(2)); n > 0 {
					t.Fatalf("%d pools have a target although no status can be written", n)
				}
				r.processes[0].crash()
				r.network.heal(noStatus)
				until("every pool has a target", func() bool { return len(r.targets(2)) == poolsOfTrial })
				first := r.targets(2)
				if n := len(r.target.List("renderedmachineconfigs")); n != poolsOfTrial {
					t.Errorf("%d RenderedMachineConfigs for %d pools", n, poolsOfTrial)
				}
				until("all generated", func() bool {
					return r.isTrue("kubeletconfigs", "k", "Accepted") &&
						r.isTrue("controllerconfigs", "machine-config-controller", "TemplateControllerCompleted") &&
						len(r.target.List("machineconfigs")) == poolsOfTrial+1
				})
				r.putConfig("machineconfigs", "MachineConfig", "00-a", map[string]any{"role": "a"}, map[string]any{"kernelArguments": []any{"two"}})
				r.run(5*time.Second, nil)
				r.processes[1].quit()
				until("every pool has the next target", func() bool {
					now := r.targets(2)
					for name, target := range first {
						if now[name] == target || now[name] == "" {
							return false
						}
					}
					return true
				})
				r.run(2*time.Minute, nil)
				if n := len(r.target.List("renderedmachineconfigs")); n != 2*poolsOfTrial {
					t.Errorf("%d RenderedMachineConfigs for %d pools with two configurations", n, poolsOfTrial)
				}
			})
		})
	}
}

// A pool that is being deleted goes soon after the last Node that it selects, although no machine
// has that Node, so that it is in no cache of a slot.
func TestDeletedPoolIsReleasedAfterItsNodes(t *testing.T) {
	o := replicaOptions(func(o *Options) { o.Configs.Enabled = true })
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newTrial(t, o, 1, nil)
		defer r.end()
		r.start("fleet-0")
		role := map[string]any{"matchLabels": map[string]any{"role": "a"}}
		r.putConfig("machineconfigs", "MachineConfig", "00-a", map[string]any{"role": "a"}, map[string]any{"kernelArguments": []any{"one"}})
		r.putConfig("machineconfigpools", "MachineConfigPool", "p", nil, map[string]any{"machineConfigSelector": role, "nodeSelector": role})
		if !r.run(10*time.Minute, func() bool { return r.targets(1)["p"] != "" }) {
			t.Fatal("the pool has no target")
		}
		if _, err := r.target.Put("nodes", map[string]any{
			"apiVersion": "v1", "kind": "Node", "metadata": map[string]any{
				"name": "other", "labels": map[string]any{"role": "a"},
				"annotations": map[string]any{fleetv1alpha1.DaemonPrefix.CurrentConfig(): r.targets(1)["p"]},
			},
		}); err != nil {
			t.Fatal(err)
		}
		r.target.Delete("machineconfigpools", "", "p")
		r.run(atRest(5*time.Minute, 15*time.Minute), nil) // halfway between two lists without a change
		if len(r.target.List("machineconfigpools")) == 0 {
			t.Fatal("the pool is gone although a Node has its configuration")
		}
		r.target.Delete("nodes", "", "other")
		isGone := func() bool {
			return len(r.target.List("machineconfigpools"))+len(r.target.List("renderedmachineconfigs")) == 0
		}
		if !r.run(time.Minute, isGone) {
			t.Error("the pool, or its configuration, is still there a minute after its only Node")
		}
	})
}
