package update

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/fleet/v1alpha1"
	machinev1alpha1 "github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
)

func podType() metav1.TypeMeta { return metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"} }

func objectMeta(namespace, name string, labels map[string]string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: labels}
}

// two lets two Nodes of a pool be updated at a time: the oracle counts all Nodes for the pool p.
func two(p *v1alpha1.MachineConfigPool) {
	most := intstr.FromInt32(2)
	p.Spec.MaxUnavailable = &most
}

// selecting has the pool select Nodes by the label pool.
func selecting(p *v1alpha1.MachineConfigPool) {
	p.Spec.NodeSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"pool": "p"}}
	p.Status.CompletedMachineConfig = "a"
}

// story runs a test with one replica that owns the pool p of target b, with Nodes n1 and n2 that
// have a.
func story(t *testing.T, before, act func(c *cluster, r *replica)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		c.pool("p", "b", selecting)
		c.join("n1", "a", nil)
		c.run(time.Second) // n1 is the oldest
		c.join("n2", "a", nil)
		r := c.start(true, func(r *replica) {
			if before != nil {
				before(c, r)
			}
		})
		defer r.end()
		c.run(time.Second)
		act(c, r)
		c.fine()
	})
}

func (c *cluster) wantNode(name string, cordoned bool, annotations ...string) {
	c.Helper()
	n := c.node(name)
	if n.Spec.Unschedulable != cordoned {
		c.Errorf("Node %s is cordoned: %t", name, n.Spec.Unschedulable)
	}
	for i := 0; i < len(annotations); i += 2 {
		if got := n.Annotations[annotations[i]]; got != annotations[i+1] {
			c.Errorf("Node %s has %s=%q, want %q", name, annotations[i], got, annotations[i+1])
		}
	}
}

func (c *cluster) condition(kind string) metav1.Condition {
	if found := meta.FindStatusCondition(c.getPool("p").Status.Conditions, kind); found != nil {
		return *found
	}
	return metav1.Condition{}
}

// One update of one Node, with all writes.
func TestUpdateOfANode(t *testing.T) {
	story(t, func(c *cluster, _ *replica) { c.pod("n1", "web") }, func(c *cluster, r *replica) {
		c.wantNode("n1", false, prefix.DesiredConfig(), "b")
		c.wantNode("n2", false, prefix.DesiredConfig(), "a")
		if taints := c.node("n2").Spec.Taints; !slices.Contains(taints, v1alpha1.UpdateInProgress()) {
			t.Errorf("n2, which waits, has taints %v", taints)
		}
		c.daemon("n1", "state", "working", "desiredDrain", "drain-b")
		c.run(5 * time.Second)
		c.wantNode("n1", true, prefix.LastAppliedDrain(), "drain-b", v1alpha1.AnnotationCordonedBy, "p", v1alpha1.AnnotationDrainSince, "")
		if c.server.Get("pods", "n", "web") != nil {
			t.Error("the pod was not evicted")
		}
		if r.drains.Len() != 0 {
			t.Errorf("%d drains are remembered", r.drains.Len())
		}
		c.daemon("n1", "currentConfig", "b", "desiredDrain", "uncordon-b")
		c.run(time.Second)
		c.wantNode("n1", false, prefix.LastAppliedDrain(), "uncordon-b", v1alpha1.AnnotationCordonedBy, "")
		c.daemon("n1", "state", "done")
		c.run(time.Second)
		c.wantNode("n2", false, prefix.DesiredConfig(), "b")
		if taints := c.node("n2").Spec.Taints; len(taints) > 0 {
			t.Errorf("n2, which was assigned, has taints %v", taints)
		}
		if writes := len(c.writes["n1"]); writes != 4 {
			t.Errorf("%d writes of n1, want 4: %q", writes, c.writes["n1"])
		}
		c.daemon("n2", "currentConfig", "b")
		c.run(10 * time.Second)
		if p := c.getPool("p"); p.Status.CompletedMachineConfig != "b" || p.Status.UpdatedMachineCount != 2 ||
			p.Status.ObservedGeneration != p.Generation {
			t.Errorf("status %+v", p.Status)
		}
		if c.emitted(machinev1alpha1.EventPoolUpdated) != 1 || c.emitted(machinev1alpha1.EventNodesAssigned) != 2 {
			t.Errorf("Events %v", c.events.List())
		}
		if meta.IsStatusConditionTrue(c.getPool("p").Status.Conditions, v1alpha1.PoolUpdating) {
			t.Error("the pool is still updating")
		}
		lists := c.lists
		c.run(24 * time.Hour)
		if c.lists != lists {
			t.Errorf("%d lists of Nodes in a day without an event", c.lists-lists)
		}
	})
}

// The node lifecycle controller removes its taints from a Node that has become Ready: the end of
// the cordon comes after that, and is not rejected. It comes, too, when that controller does
// nothing.
func TestEndOfTheCordonWaitsForTheTaintsOfNotReady(t *testing.T) {
	for name, removed := range map[string]bool{"removed": true, "kept": false} {
		t.Run(name, func(t *testing.T) {
			story(t, nil, func(c *cluster, _ *replica) {
				c.daemon("n1", "state", "working", "desiredDrain", "drain-b")
				c.run(time.Second)
				taint := corev1.Taint{Key: corev1.TaintNodeNotReady, Effect: corev1.TaintEffectNoExecute}
				c.edit("n1", func(n *corev1.Node) {
					n.Spec.Taints = append(n.Spec.Taints, taint)
					n.Status.Conditions[0].LastTransitionTime = metav1.Now()
				})
				c.daemon("n1", "currentConfig", "b", "desiredDrain", "uncordon-b")
				c.run(time.Second)
				c.wantNode("n1", true, prefix.LastAppliedDrain(), "drain-b")
				if removed {
					c.edit("n1", func(n *corev1.Node) {
						n.Spec.Taints = slices.DeleteFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t == taint })
					})
					c.run(time.Second)
				} else {
					c.run(5 * time.Second)
				}
				c.wantNode("n1", false, prefix.LastAppliedDrain(), "uncordon-b")
				if len(c.writes["n1"]) != 4 || c.refused > 0 {
					t.Errorf("%d writes of n1, want 4; %d rejected: %q", len(c.writes["n1"]), c.refused, c.writes["n1"])
				}
			})
		})
	}
}

func TestNodeThatAUserHasCordonedStaysCordoned(t *testing.T) {
	story(t, nil, func(c *cluster, _ *replica) {
		c.edit("n1", func(n *corev1.Node) { n.Spec.Unschedulable = true })
		c.daemon("n1", "state", "working", "desiredDrain", "drain-b")
		c.run(time.Second)
		c.wantNode("n1", true, prefix.LastAppliedDrain(), "drain-b", v1alpha1.AnnotationCordonedBy, "")
		c.daemon("n1", "currentConfig", "b", "state", "done", "desiredDrain", "uncordon-b")
		c.run(time.Second)
		c.wantNode("n1", true, prefix.LastAppliedDrain(), "uncordon-b")
	})
}

// blocked puts a pod on n1 that a PodDisruptionBudget keeps permanently.
func blocked(c *cluster, r *replica) {
	c.pod("n1", "web")
	r.evict = func(*policyv1.Eviction) error {
		return apierrors.NewTooManyRequests("Cannot evict pod as it would violate the pod's disruption budget.", 0)
	}
	one := intstr.FromInt32(1)
	c.put("poddisruptionbudgets", &policyv1.PodDisruptionBudget{
		TypeMeta: metav1.TypeMeta{APIVersion: "policy/v1", Kind: "PodDisruptionBudget"}, ObjectMeta: objectMeta("n", "web", nil),
		Spec: policyv1.PodDisruptionBudgetSpec{
			MinAvailable: &one, Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}},
		},
		Status: policyv1.PodDisruptionBudgetStatus{ObservedGeneration: 1, CurrentHealthy: 1, DesiredHealthy: 1, ExpectedPods: 1},
	})
}

func TestBlockedDrainStatusAndEventNameThePod(t *testing.T) {
	story(t, blocked, func(c *cluster, r *replica) {
		c.daemon("n1", "state", "working", "desiredDrain", "drain-b")
		c.run(30 * time.Second)
		c.wantNode("n1", true, prefix.LastAppliedDrain(), "")
		if message := c.condition(v1alpha1.PoolUpdating).Message; !strings.Contains(message, "n/web held by PodDisruptionBudget n/web") {
			t.Errorf("message %q", message)
		}
		if got := c.emitted(machinev1alpha1.EventNodeDrainBlocked); got != 1 {
			t.Errorf("%d Events, want 1", got)
		}
		r.own(false)
		c.run(time.Second)
		if r.drains.Len() != 0 || r.controller.watches.len() != 0 {
			t.Errorf("%d drains and %d watches are left after the hand-over", r.drains.Len(), r.controller.watches.len())
		}
		r.own(true)
		c.run(2 * time.Hour) // the drain timeout counts from its beginning
		c.wantNode("n1", true, prefix.LastAppliedDrain(), "drain-b")
		if got := c.emitted(machinev1alpha1.EventNodeDrainForced); got != 1 {
			t.Errorf("%d Events, want 1", got)
		}
	})
}

func TestEventNamesAPodThatCannotBeEvictedAndTheUpdateGoesOn(t *testing.T) {
	few := func(c *cluster, r *replica) {
		blocked(c, r)
		r.retries = 2
	}
	story(t, few, func(c *cluster, _ *replica) {
		c.daemon("n1", "state", "working", "desiredDrain", "drain-b")
		c.run(39 * time.Second)
		if got := c.emitted(machinev1alpha1.EventEvictionTimedOut); got != 0 {
			t.Errorf("%d Events, want none yet", got)
		}
		c.run(2 * time.Second)
		c.wantNode("n1", true, prefix.LastAppliedDrain(), "drain-b")
		if got := c.emitted(machinev1alpha1.EventEvictionTimedOut); got != 1 {
			t.Errorf("%d Events, want 1", got)
		}
	})
}

// The annotations of a Node are written by its kubelet: they have no effect on other Nodes, and
// none beyond maxUnavailable.
func TestForgedRequests(t *testing.T) {
	for name, tc := range map[string]struct {
		forge []string
		why   string
	}{
		"another configuration than assigned": {[]string{"desiredDrain", "drain-b"}, "it was not assigned that configuration"},
		"a configuration of no pool": {
			[]string{"desiredConfig", "x", "desiredDrain", "drain-x"}, "it was not assigned that configuration",
		},
		"it assigns itself the target": {[]string{"desiredConfig", "b", "desiredDrain", "drain-b"}, "maxUnavailable is used up"},
		"an unknown request":           {[]string{"desiredDrain", strings.Repeat("x", 10_000)}, "the request is unknown"},
	} {
		t.Run(name, func(t *testing.T) {
			story(t, blocked, func(c *cluster, _ *replica) {
				c.daemon("n1", "state", "working", "desiredDrain", "drain-b")
				c.run(10 * time.Second)
				c.pod("n2", "db")
				c.daemon("n2", tc.forge...)
				c.run(10 * time.Second)
				c.wantNode("n2", false, prefix.LastAppliedDrain(), "")
				if c.server.Get("pods", "n", "db") == nil {
					t.Error("the pod was evicted")
				}
				if message := c.condition(v1alpha1.PoolUpdating).Message; !strings.Contains(message, "Node n2 is not drained: "+tc.why) {
					t.Errorf("message %q", message)
				}
			})
		})
	}
}

func TestForgedUncordonOfANodeThatAUserHasCordoned(t *testing.T) {
	story(t, nil, func(c *cluster, _ *replica) {
		c.edit("n2", func(n *corev1.Node) { n.Spec.Unschedulable = true })
		c.daemon("n2", "desiredDrain", "uncordon-a")
		c.run(time.Second)
		c.wantNode("n2", true, prefix.LastAppliedDrain(), "uncordon-a")
	})
}

func TestHoldStartsNoUpdate(t *testing.T) {
	story(t, func(_ *cluster, r *replica) { r.hold = "annotation x of Lease y" }, func(c *cluster, r *replica) {
		c.wantNode("n1", false, prefix.DesiredConfig(), "a")
		if is := c.condition(v1alpha1.PoolUpdating); is.Reason != "Held" || !strings.Contains(is.Message, r.hold) {
			t.Errorf("condition %+v", is)
		}
		r.hold = ""
		r.controller.HoldChanged("")
		c.run(time.Second)
		c.wantNode("n1", false, prefix.DesiredConfig(), "b")
		r.hold = "again"
		c.daemon("n1", "state", "working", "desiredDrain", "drain-b")
		c.run(time.Second)
		c.wantNode("n1", false, prefix.LastAppliedDrain(), "")
		r.hold = ""
		r.controller.HoldChanged("")
		c.run(time.Second)
		c.wantNode("n1", true, prefix.LastAppliedDrain(), "drain-b")
	})
}

// A drain for a machine that is being deleted is the machine controller's.
func TestNodeOfAMachineThatIsBeingDeletedIsLeftAlone(t *testing.T) {
	story(t, nil, func(c *cluster, r *replica) {
		c.edit("n1", func(n *corev1.Node) {
			n.Spec.Unschedulable = true
			n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{
				Type: machinev1alpha1.NodeTerminating, Status: corev1.ConditionTrue,
			})
		})
		c.daemon("n1", "state", "working", "desiredDrain", "drain-b")
		writes := len(c.writes["n1"])
		c.run(time.Minute)
		if len(c.writes["n1"]) != writes || r.drains.Len() > 0 {
			t.Errorf("writes %q, %d drains", c.writes["n1"], r.drains.Len())
		}
	})
}

// The watch of Nodes follows the selector, and the API server filters.
func TestWatchFollowsSelectorAndPool(t *testing.T) {
	story(t, nil, func(c *cluster, r *replica) {
		c.pool("p", "b", func(p *v1alpha1.MachineConfigPool) {
			p.Spec.NodeSelector.MatchLabels = map[string]string{"pool": "other"}
			two(p)
		})
		c.join("n3", "a", func(n *corev1.Node) { n.Labels["pool"] = "other" })
		c.run(10 * time.Second)
		if got := c.getPool("p").Status.MachineCount; got != 1 {
			t.Errorf("%d Nodes", got)
		}
		c.wantNode("n3", false, prefix.DesiredConfig(), "b")
		if got := r.controller.watches.len(); got != 1 {
			t.Errorf("%d watches", got)
		}
		c.server.Remove("machineconfigpools", "", "p")
		c.run(time.Second)
		if got := r.controller.watches.len(); got != 0 {
			t.Errorf("%d watches of a pool that is gone", got)
		}
	})
}

// The Nodes of machines that a pool refers to are its own, also where the labels of another pool
// select them.
func TestPoolByReference(t *testing.T) {
	story(t, func(c *cluster, r *replica) {
		c.pool("p", "b", two)
		c.pool("ref", "r", func(p *v1alpha1.MachineConfigPool) {
			p.Spec.MachineRef = &v1alpha1.MachineReference{Kind: "MachineDeployment", Namespace: "m", Name: "d"}
		})
		isController := true
		c.edit("n2", func(n *corev1.Node) {
			n.Labels[machinev1alpha1.LabelSlot] = "7"
			n.Annotations[machinev1alpha1.AnnotationMachine] = "m/m2/u-m2"
		})
		d := &machinev1alpha1.MachineDeployment{ObjectMeta: objectMeta("m", "d", map[string]string{machinev1alpha1.LabelSlot: "7"})}
		d.UID, d.ResourceVersion = "u-d", "1"
		set := &machinev1alpha1.MachineSet{ObjectMeta: objectMeta("m", "s", nil)}
		set.UID, set.ResourceVersion, set.OwnerReferences = "u-s", "1", []metav1.OwnerReference{
			{Kind: "MachineDeployment", Name: "d", UID: "u-d", Controller: &isController},
		}
		m := &machinev1alpha1.Machine{ObjectMeta: objectMeta("m", "m2", map[string]string{machinev1alpha1.LabelNode: "n2"})}
		m.UID, m.ResourceVersion = "u-m2", "1"
		m.OwnerReferences = []metav1.OwnerReference{{Kind: "MachineSet", Name: "s", UID: "u-s", Controller: &isController}}
		r.view.Deployments.Put(d, false)
		r.view.Sets.Put(set, false)
		r.view.Machines.Put(m, false)
	}, func(c *cluster, r *replica) {
		r.target.Nodes.Apply(c.node("n2"), false) // the cache of the slot
		c.run(10 * time.Second)
		c.wantNode("n1", false, prefix.DesiredConfig(), "b")
		c.wantNode("n2", false, prefix.DesiredConfig(), "r")
		if got := c.node("n2").Labels[v1alpha1.LabelPool]; got != "ref" {
			t.Errorf("n2 is of pool %s", got)
		}
		if p, ref := c.getPool("p"), c.getPool("ref"); p.Status.MachineCount != 1 || ref.Status.MachineCount != 1 {
			t.Errorf("p has %d Nodes, ref %d", p.Status.MachineCount, ref.Status.MachineCount)
		}
		// Another machine has no Node yet.
		m := &machinev1alpha1.Machine{ObjectMeta: objectMeta("m", "m3", nil)}
		m.UID, m.ResourceVersion = "u-m3", "2"
		isController := true
		m.OwnerReferences = []metav1.OwnerReference{{Kind: "MachineSet", Name: "s", UID: "u-s", Controller: &isController}}
		r.view.Machines.Put(m, false)
		r.target.Nodes.Apply(c.node("n2"), false)
		c.daemon("n2", "state", "working", "desiredDrain", "drain-r")
		r.target.Nodes.Apply(c.node("n2"), false)
		c.run(10 * time.Second)
		c.wantNode("n2", false, prefix.LastAppliedDrain(), "")
		r.view.Machines.Delete(types.NamespacedName{Namespace: "m", Name: "m3"}, "")
		c.run(10 * time.Second)
		c.wantNode("n2", true, prefix.LastAppliedDrain(), "drain-r")
	})
}

// A MachineDeployment that was created anew has the generation of the one before, and none of its
// machines.
func TestReferenceToAMachineDeploymentInThePlaceOfAnother(t *testing.T) {
	deployment := func(uid types.UID, version string) *machinev1alpha1.MachineDeployment {
		d := &machinev1alpha1.MachineDeployment{ObjectMeta: objectMeta("m", "d", map[string]string{machinev1alpha1.LabelSlot: "7"})}
		d.UID, d.ResourceVersion = uid, version
		return d
	}
	story(t, func(c *cluster, r *replica) {
		c.pool("p", "b", two)
		c.pool("ref", "r", func(p *v1alpha1.MachineConfigPool) {
			p.Spec.MachineRef = &v1alpha1.MachineReference{Kind: "MachineDeployment", Namespace: "m", Name: "d"}
		})
		c.edit("n2", func(n *corev1.Node) {
			n.Labels[machinev1alpha1.LabelSlot] = "7"
			n.Annotations[machinev1alpha1.AnnotationMachine] = "m/m2/u-m2"
		})
		isController := true
		set := &machinev1alpha1.MachineSet{ObjectMeta: objectMeta("m", "s", nil)}
		set.UID, set.ResourceVersion, set.OwnerReferences = "u-s", "1", []metav1.OwnerReference{
			{Kind: "MachineDeployment", Name: "d", UID: "u-d", Controller: &isController},
		}
		m := &machinev1alpha1.Machine{ObjectMeta: objectMeta("m", "m2", map[string]string{machinev1alpha1.LabelNode: "n2"})}
		m.UID, m.ResourceVersion = "u-m2", "1"
		m.OwnerReferences = []metav1.OwnerReference{{Kind: "MachineSet", Name: "s", UID: "u-s", Controller: &isController}}
		r.view.Deployments.Put(deployment("u-d", "1"), false)
		r.view.Sets.Put(set, false)
		r.view.Machines.Put(m, false)
	}, func(c *cluster, r *replica) {
		r.target.Nodes.Apply(c.node("n2"), false)
		c.run(10 * time.Second)
		if n := c.getPool("ref").Status.MachineCount; n != 1 {
			c.Fatalf("%d Nodes, want 1", n)
		}
		r.view.Deployments.Put(deployment("another", "2"), false)
		c.run(10 * time.Second)
		if n := c.getPool("ref").Status.MachineCount; n != 0 {
			c.Errorf("%d Nodes, want none", n)
		}
	})
}

func TestStatusNamesAReferenceToNothing(t *testing.T) {
	story(t, func(c *cluster, _ *replica) {
		c.pool("ref", "r", func(p *v1alpha1.MachineConfigPool) {
			p.Spec.MachineRef = &v1alpha1.MachineReference{Kind: "MachineDeployment", Namespace: "m", Name: "none"}
		})
	}, func(c *cluster, _ *replica) {
		found := meta.FindStatusCondition(c.getPool("ref").Status.Conditions, v1alpha1.PoolUpdating)
		if found == nil || found.Reason != "NodesUnknown" || !strings.Contains(found.Message, "m/none") {
			t.Errorf("condition %+v", found)
		}
	})
}

// The conditions of the RenderController stay.
func TestStatusKeepsConditionsOfOthers(t *testing.T) {
	story(t, nil, func(c *cluster, _ *replica) {
		c.pool("p", "b", func(p *v1alpha1.MachineConfigPool) {
			p.Status.Conditions = append(p.Status.Conditions, metav1.Condition{
				Type: v1alpha1.PoolRenderDegraded, Status: metav1.ConditionTrue, Reason: "X", Message: "y",
			})
		})
		c.run(10 * time.Second)
		if is := c.condition(v1alpha1.PoolRenderDegraded); is.Reason != "X" {
			t.Errorf("condition %+v", is)
		}
		if is := c.condition(v1alpha1.PoolDegraded); is.Status != metav1.ConditionTrue || is.Message != "y" {
			t.Errorf("condition %+v", is)
		}
	})
}

// A heartbeat of a kubelet causes no pass.
func TestMatters(t *testing.T) {
	node := func(change func(n *corev1.Node)) *corev1.Node {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"a": "b"}, ResourceVersion: "1"}}
		n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
		change(n)
		return n
	}
	before := node(func(*corev1.Node) {})
	for name, change := range map[string]func(n *corev1.Node){
		"heartbeat":  func(n *corev1.Node) { n.Status.Conditions[0].LastHeartbeatTime, n.ResourceVersion = metav1.Now(), "2" },
		"label":      func(n *corev1.Node) { n.Labels["a"] = "c" },
		"annotation": func(n *corev1.Node) { n.Annotations = map[string]string{"a": ""} },
		"cordon":     func(n *corev1.Node) { n.Spec.Unschedulable = true },
		"not ready":  func(n *corev1.Node) { n.Status.Conditions[0].Status = corev1.ConditionFalse },
		"deleted":    func(n *corev1.Node) { n.DeletionTimestamp = &metav1.Time{} },
	} {
		if got, want := matters(before, node(change)), name != "heartbeat"; got != want {
			t.Errorf("%s matters: %t", name, got)
		}
	}
	if !slices.Equal(slices.Sorted(maps.Keys(conditionsOf(before))), []corev1.NodeConditionType{corev1.NodeReady}) {
		t.Error(conditionsOf(before))
	}
}

// len returns how many watches there are.
func (w *watches) len() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.running)
}
