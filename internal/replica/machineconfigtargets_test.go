package replica

import (
	"encoding/base64"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	fleetv1alpha1 "github.com/machine-controller-fleet/machine-controller-fleet/apis/fleet/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/apiserver"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/targettest"
	"github.com/machine-controller-fleet/machine-controller-fleet/shard/assignment"
)

// configured is a trial with machine configuration in the target clusters of namespaces. Each has a
// MachineDeployment "d" whose machines boot with a configuration.
type configured struct {
	*trial

	daemons *daemons
}

// onConfigured runs two replicas. The namespace "c" has the cluster of "a".
func onConfigured(t *testing.T, test func(c *configured)) {
	t.Helper()
	t.Parallel()
	o := replicaOptions(func(o *Options) {
		o.Targets.ByNamespace, o.Fleet.ShardBy = true, string(assignment.ByNamespace)
		o.Configs.Enabled, o.Machine.ComponentsTaint, o.Safety.OrphanVMsPeriod = true, false, 0
	})
	synctest.Test(t, func(t *testing.T) {
		c := &configured{trial: newTrial(t, o, 1, &strings.Builder{})}
		defer c.end()
		c.createUnmanaged()
		c.ownTargets = map[string]*apiserver.Server{"a": apiserver.New("ta", time.Now), "b": apiserver.New("tb", time.Now)}
		c.ownTargets["c"] = c.ownTargets["a"]
		c.daemons = newDaemons(c.trial)
		for _, server := range []*apiserver.Server{c.control, c.ownTargets["a"], c.ownTargets["b"]} {
			apiserver.Add(server, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: metav1.NamespaceSystem}})
		}
		for namespace := range c.ownTargets {
			c.createClass(namespace)
			c.control.Edit("secrets", namespace, "small", func(u *unstructured.Unstructured) {
				u.Object["data"] = map[string]any{"userData": base64.StdEncoding.EncodeToString([]byte(v1alpha1.PlaceholderMachineConfig))}
			})
			c.putTarget(namespace, targettest.SecretOf("https://"+namespace+".example", "t"))
			c.putRoot(namespace, "d", 1)
		}
		for i := range 2 {
			c.start(fmt.Sprint("fleet-", i))
		}
		test(c)
		if c.wrong != "" || t.Failed() {
			c.logObjects()
			t.Errorf("%s\n%s", c.wrong, c.story)
		}
	})
}

// putPool creates or changes a pool in the cluster of a namespace. of is the namespace of the
// MachineDeployment that it refers to; with "" it selects Nodes.
func (c *configured) putPool(in, name, of, rollout string) {
	c.Helper()
	spec := map[string]any{"machineConfigSelector": map[string]any{"matchLabels": map[string]any{"pool": name}}}
	if of == "" {
		spec["nodeSelector"] = map[string]any{"matchLabels": map[string]any{"role": name}}
	} else {
		spec["machineRef"] = map[string]any{"kind": "MachineDeployment", "namespace": of, "name": "d"}
		spec["rollout"] = rollout
	}
	c.putIn(in, "machineconfigpools", "MachineConfigPool", name, nil, spec)
}

func (c *configured) putIn(in, resource, kind, name string, labels, spec map[string]any) {
	c.Helper()
	c.put(c.ownTargets[in], resource, map[string]any{
		"apiVersion": "fleet.machine.sapcloud.io/v1alpha1", "kind": kind, "metadata": map[string]any{"name": name, "labels": labels},
		"spec": spec,
	})
}

// configure gives the pools of a name in a cluster an argument of the kernel.
func (c *configured) configure(in, pool, argument string) {
	c.Helper()
	spec := map[string]any{"kernelArguments": []any{argument}}
	c.putIn(in, "machineconfigs", "MachineConfig", "00-"+pool, map[string]any{"pool": pool}, spec)
}

// target returns the target of a pool; "" if it has none.
func (c *configured) target(in, pool string) string {
	o := c.ownTargets[in].Get("machineconfigpools", "", pool)
	if o == nil {
		return ""
	}
	target, _, _ := unstructured.NestedString(o.Object, "status", "currentMachineConfig")
	return target
}

// condition returns the reason of a condition of a pool.
func (c *configured) condition(in, pool, kind string) (reason string) {
	is := typed[fleetv1alpha1.MachineConfigPool](c.trial, c.ownTargets[in].Get("machineconfigpools", "", pool))
	for _, condition := range is.Status.Conditions {
		if condition.Type == kind {
			reason = condition.Reason
		}
	}
	return reason
}

// hasAll reports whether the machines of a namespace have the target of a pool.
func (c *configured) hasAll(namespace, pool string) bool {
	target, machines := c.target(namespace, pool), 0
	for _, m := range c.control.List("machines") {
		if m.GetNamespace() != namespace {
			continue
		}
		machines++
		node := c.ownTargets[namespace].Get("nodes", "", m.GetName())
		if node == nil || node.GetAnnotations()[fleetv1alpha1.DaemonPrefix.CurrentConfig()] != target {
			return false
		}
	}
	return machines > 0 && target != ""
}

// after lets time pass, with the daemons, until cond holds.
func (c *configured) after(what string, cond func() bool) {
	c.Helper()
	c.until(what, func() bool {
		c.daemons.step()
		return cond()
	})
}

// changes has a pool be configured anew, and waits for the machines.
func (c *configured) changes(namespace, pool, argument string) {
	c.Helper()
	before := c.target(namespace, pool)
	c.configure(namespace, pool, argument)
	c.after("the machines of "+namespace+" have what is new", func() bool {
		return c.target(namespace, pool) != before && c.hasAll(namespace, pool)
	})
}

// Pools of one name in the clusters of two namespaces have their own targets, Nodes and machines,
// of which new ones boot with their configuration. A cluster that is away delays no other, and goes
// on. So does one that is closed, because its namespace has no machine, and the other replica when
// the owner has left.
func TestPoolsOfNamespacesClusters(t *testing.T) {
	onConfigured(t, func(c *configured) {
		for _, namespace := range []string{"a", "b"} {
			c.configure(namespace, "p", "first="+namespace)
		}
		c.putPool("a", "p", "a", "")
		c.putPool("b", "p", "b", string(fleetv1alpha1.RolloutMachineDeployment))
		c.after("machines boot with the configurations of their clusters", func() bool { return c.hasAll("a", "p") && c.hasAll("b", "p") })
		if c.target("a", "p") == c.target("b", "p") {
			t.Fatal("both pools have the same target")
		}
		machines := func(of string) (uids []string) {
			for _, m := range c.control.List("machines") {
				if m.GetNamespace() == of {
					uids = append(uids, string(m.GetUID()))
				}
			}
			return uids
		}
		before := map[string][]string{"a": machines("a"), "b": machines("b")}
		c.changes("a", "p", "second=a")
		c.changes("b", "p", "second=b")
		if !slices.Equal(before["a"], machines("a")) || slices.Equal(before["b"], machines("b")) {
			t.Errorf("machines of a %v, of b %v, and before %v: want those of a to be updated, and those of b to be replaced",
				machines("a"), machines("b"), before)
		}
		away := c.network.disturb(&disturbance{
			name: "the cluster of a is away", there: true, refuses: true, of: func(q request) bool { return q.place == "a."+atTarget },
		})
		c.configure("a", "p", "third=a")
		c.changes("b", "p", "third=b")
		old := c.target("a", "p")
		c.network.heal(away)
		c.after("the cluster that was away is served", func() bool { return c.target("a", "p") != old && c.hasAll("a", "p") })
		c.putRoot("a", "d", 0)
		c.run(3*time.Minute, nil)
		old = c.target("a", "p")
		c.configure("a", "p", "fourth=a")
		if c.run(2*time.Minute, func() bool { return c.target("a", "p") != old }) {
			t.Error("the pool of a namespace without a machine has a new target, want none while its cluster is closed")
		}
		c.putRoot("a", "d", 1)
		c.after("the cluster that was closed is served", func() bool { return c.target("a", "p") != old && c.hasAll("a", "p") })
		c.ownerOf("a", "d").quit()
		c.run(5*time.Second, nil)
		c.changes("a", "p", "fifth=a")
		c.changes("b", "p", "fourth=b")
	})
}

// A client that can write pools in the cluster of a namespace reaches nothing of another namespace.
// The pool says so.
func TestPoolReachesNoOtherNamespace(t *testing.T) {
	onConfigured(t, func(c *configured) {
		for _, namespace := range []string{"a", "b"} {
			c.configure(namespace, "p", "first="+namespace)
			c.putPool(namespace, "p", namespace, "")
		}
		c.configure("a", "evil", "evil")
		c.putPool("a", "evil", "b", string(fleetv1alpha1.RolloutMachineDeployment))
		c.after("the pool of the other namespace is refused", func() bool {
			return c.condition("a", "evil", fleetv1alpha1.PoolRenderDegraded) == "OtherNamespace" && c.hasAll("a", "p") && c.hasAll("b", "p")
		})
		c.run(5*time.Minute, nil)
		if target := c.target("a", "evil"); target != "" {
			t.Errorf("it has the target %s", target)
		}
		if n := len(c.ownTargets["a"].List("renderedmachineconfigs")); n != 1 {
			t.Errorf("%d RenderedMachineConfigs, want that of the other pool only", n)
		}
		if d := typed[v1alpha1.MachineDeployment](c.trial, c.control.Get("machinedeployments", "b", "d")); len(d.Spec.Template.Annotations) > 0 {
			t.Errorf("the template of the other namespace has the annotations %v", d.Spec.Template.Annotations)
		}
	})
}

// Two namespaces have the same cluster: a pool is served for the one that has its machines, and
// what names no namespace for one of them.
func TestNamespacesWithTheSameCluster(t *testing.T) {
	onConfigured(t, func(c *configured) {
		for _, pool := range []string{"pa", "pc", "some"} {
			c.configure("a", pool, "of="+pool)
		}
		c.putPool("a", "pa", "a", "")
		c.putPool("a", "pc", "c", "")
		c.putPool("a", "some", "", "")
		c.putIn("a", "kubeletconfigs", "KubeletConfig", "k", nil, map[string]any{
			"machineConfigPoolSelector": map[string]any{}, "kubeletConfig": map[string]any{"maxPods": int64(50)},
		})
		c.putIn("a", "controllerconfigs", "ControllerConfig", fleetv1alpha1.ControllerConfigName, nil, map[string]any{"roles": []any{"a"}})
		c.after("all are served", func() bool {
			return c.hasAll("a", "pa") && c.hasAll("c", "pc") && c.target("a", "some") != ""
		})
		c.run(5*time.Minute, nil)
		for _, pool := range []string{"pa", "pc", "some"} {
			if reason := c.condition("a", pool, fleetv1alpha1.PoolRenderDegraded); reason != "Rendered" {
				t.Errorf("pool %s has the reason %s, want Rendered", pool, reason)
			}
		}
		for _, o := range []*apiserver.Object{
			c.ownTargets["a"].Get("machineconfigpools", "", "some"), c.ownTargets["a"].Get("kubeletconfigs", "", "k"),
			c.ownTargets["a"].Get("controllerconfigs", "", fleetv1alpha1.ControllerConfigName),
		} {
			if of := o.GetAnnotations()[fleetv1alpha1.AnnotationNamespace]; of != "a" && of != "c" {
				t.Errorf("%s %s is for namespace %q, want a or c", o.GetKind(), o.GetName(), of)
			}
			if conditions, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions"); len(conditions) == 0 {
				t.Errorf("%s %s has no condition", o.GetKind(), o.GetName())
			}
		}
	})
}
