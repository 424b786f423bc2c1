package machine

import (
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machine/lifecycle"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machine/nodesync"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/deletion/receipt"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/machinefacts"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/objectcache"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/apiserver"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/fakecloud"
)

// A cache that is late shows the Node without our finalizer. Deleting it then would leave it
// permanently.
func TestANodeIsNotDeletedWithOurFinalizer(t *testing.T) {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "m", UID: "node", Finalizers: []string{v1alpha1.NodeFinalizerName, "other/one"}}}
	cluster := apiserver.Recording(node)
	c, p := targetBench(t, cluster, "u")
	stale := node.DeepCopy()
	stale.Finalizers = nil
	p.world.Node = lifecycle.NodeFact{State: lifecycle.NodePresent, Node: stale}
	if err := c.nodes.delete(t.Context(), p, receipt.Reason{}); err != nil {
		t.Fatal(err)
	}
	want := `{"metadata":{"$deleteFromPrimitiveList/finalizers":["node.machine.sapcloud.io/machine-controller"],"uid":"node"}}`
	if got := cluster.Sent("patch nodes"); !slices.Equal(got, []string{want}) {
		t.Errorf("patches %s, want %s", got, want)
	}
	if got := cluster.Log(); !slices.Equal(got, []string{"patch nodes", "delete nodes"}) {
		t.Errorf("requests %v, want a patch and a delete", got)
	}
	if p.world.Node.State != lifecycle.NodeAbsent {
		t.Errorf("the Node is in state %d", p.world.Node.State)
	}
}

// The replica that has claimed a Node need not wait until the cache, which follows labelled Nodes
// only, shows it.
func TestAClaimedNodeIsKnownAtOnce(t *testing.T) {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "m", UID: "node"}}
	cluster := apiserver.Recording(node)
	c, p := targetBench(t, cluster, "u")
	wall := clocktesting.NewFakeClock(now)
	c.cfg.Clock, c.cfg.IsUnlabeled = wall, func(string) bool { return true }
	if err := c.addNodes(wall, func(types.NamespacedName) {}); err != nil {
		t.Fatal(err)
	}
	p.cluster.Nodes = objectcache.New[*corev1.Node]()
	p.world.Machine.Labels = map[string]string{v1alpha1.LabelSlot: "7", v1alpha1.LabelNode: "m"}
	expect := func(when string, want lifecycle.NodeState) {
		t.Helper()
		if c.nodes.observe(p, "m"); p.world.Node.State != want {
			t.Errorf("%s: the Node is in state %d, want %d", when, p.world.Node.State, want)
		}
	}
	expect("before", lifecycle.NodeNamed)
	if err := c.nodes.find(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	if err := c.nodes.claim(t.Context(), p, claimPatch(p)); err != nil {
		t.Fatal(err)
	}
	claimed := p.world.Node.Node
	if claimed.Labels[v1alpha1.LabelSlot] != "7" || claimed.Labels[v1alpha1.LabelMachineName] != "m" {
		t.Errorf("labels %v", claimed.Labels)
	}
	expect("claimed", lifecycle.NodePresent)
	c.NodeAppeared(p.cluster, "m", "node")
	expect("late news of it", lifecycle.NodePresent)
	wall.Step(machinefacts.LateCache)
	expect("never shown by the cache", lifecycle.NodeNamed)
	p.cluster.Nodes.Apply(claimed, false)
	expect("shown by the cache", lifecycle.NodePresent)
}

// The watch of Nodes is interrupted while a Node joins, is claimed and healthy, and is deleted: no
// event reports its end.
func TestANodeThatTheCacheHasNeverShownIsMissed(t *testing.T) {
	onBench(t, func(b *bench) {
		apiserver.Follow(b.target, "nodes", func(*corev1.Node, bool) {}) // the process sees none
		b.create()
		b.becomes(v1alpha1.MachineRunning, 5*time.Minute)
		b.pass(10 * time.Minute)
		if is := b.get().Status.CurrentStatus.Phase; is != v1alpha1.MachineRunning {
			b.Errorf("the machine is %s although its Node is healthy", is)
		}
		b.target.Remove("nodes", "", "m")
		b.becomes(v1alpha1.MachineUnknown, 2*time.Minute)
	})
}

// claimPatch is the patch with which lifecycle has claimed a Node whose machine has an empty
// template.
func claimPatch(p *pass) *nodesync.Patch {
	m := p.world.Machine
	node := p.world.Node.Node
	main, _ := nodesync.Diff(node, nodesync.Wanted{Machine: v1alpha1.RefOf(m), Slot: m.Labels[v1alpha1.LabelSlot]}.Apply(node))
	return main
}

// A Node that joins while the cache does not show yet that its machine names it begins no pass of
// the machine. That of a target cluster of a namespace is in the cache when it does.
func TestNodeThatJoinsBeforeTheCacheShowsItsMachineIsSeen(t *testing.T) {
	onBench(t, func(b *bench) {
		var late *apiserver.Backlog
		b.end()
		b.rewire = func(w *wires) {
			w.targetName, w.show = "n", func(view *objectcache.View) { late = b.server.ShowLate(view) }
		}
		b.start()
		b.create()
		late.Show("machines", late.Len("machines"))
		b.pass(2 * bootTime) // the VM exists, and its Node has joined
		late.Show("machines", late.Len("machines"))
		b.becomes(v1alpha1.MachineRunning, time.Second)
	})
}

// A VM may become a Node between the look for its Node and its own end.
func TestNodeThatJoinsWhileItsVMIsDeletedIsDeleted(t *testing.T) {
	onBench(t, func(b *bench) {
		var booting *fakecloud.Resource
		b.cloud.Created = func(vm *fakecloud.Resource) { booting = vm }
		b.cloud.Ends = func(*fakecloud.Resource) {
			b.setNode(&corev1.Node{
				ObjectMeta: metav1.ObjectMeta{Name: booting.NodeName, UID: "late"}, Spec: corev1.NodeSpec{ProviderID: booting.ID},
			})
		}
		b.create()
		b.pass(time.Second)
		b.delete()
		b.pass(time.Minute)
		if left := b.left(); b.get() != nil || len(left) > 0 {
			t.Errorf("left: %v; %s", left, b.operation())
		}
	})
}

// The process that has created the VM ends before the Node of that VM is claimed, and the VM has
// ended when the next process looks. If the cloud still knows whose the VM was, the Node is
// deleted; else nothing proves that the Node is the machine's.
func TestNodeOfAVMThatHasEndedIsDeletedAfterATakeOver(t *testing.T) {
	for name, c := range map[string]struct {
		forgets bool
		left    int
	}{
		"the cloud knows the VM":  {},
		"the cloud has forgotten": {forgets: true, left: 1},
	} {
		for _, after := range []time.Duration{0, 30 * time.Second} { // the VM is ending, or has ended
			onBench(t, func(b *bench) {
				var booting *fakecloud.Resource
				b.cloud.Created = func(vm *fakecloud.Resource) { booting = vm }
				b.cloud.Stops, b.cloud.Forgets = 20*time.Second, c.forgets
				b.create()
				b.pass(time.Second)
				b.delete()
				b.pass(time.Second)
				b.end()
				b.setNode(&corev1.Node{
					ObjectMeta: metav1.ObjectMeta{Name: booting.NodeName, UID: "late"}, Spec: corev1.NodeSpec{ProviderID: booting.ID},
				})
				b.takeOver(after)
				b.pass(2 * time.Minute)
				if left := b.left(); b.get() != nil || len(left) != c.left {
					t.Errorf("%s, after %s: left: %v, want %d; %s", name, after, left, c.left, b.operation())
				}
			})
		}
	}
}
