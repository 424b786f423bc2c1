package node

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/objectcache"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/target"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/apiserver"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const others = "somebody.example/else"

func node(change func(*corev1.Node)) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name: "m", UID: "node", ResourceVersion: "1", Finalizers: []string{others, v1alpha1.NodeFinalizerName},
		DeletionTimestamp: &metav1.Time{Time: time.Unix(1, 0)}, Labels: map[string]string{v1alpha1.LabelMachineName: "m"},
	}}
	if change != nil {
		change(n)
	}
	return n
}

func boundTo(ref string) func(*corev1.Node) {
	return func(n *corev1.Node) { metav1.SetMetaDataAnnotation(&n.ObjectMeta, v1alpha1.AnnotationMachine, ref) }
}

func machine(namespace, name, nodeName string) *v1alpha1.Machine {
	return &v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{
		Namespace: namespace, Name: name, ResourceVersion: "1", Labels: map[string]string{v1alpha1.LabelNode: nodeName},
	}}
}

func TestFinalizerIsRemovedFromNodesWithoutMachine(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*corev1.Node)
		served string
		// live are the existing machines, and shown those of them that the cache has.
		live, shown []*v1alpha1.Machine
		// forged are cached machines that name the Node and that it does not belong to.
		forged   []*v1alpha1.Machine
		released bool
	}{
		"its machine was deleted": {released: true},
		"only other machines exist": {
			live: []*v1alpha1.Machine{machine("n", "other", "other")}, released: true,
		},
		"it is not being deleted": {change: func(n *corev1.Node) { n.DeletionTimestamp = nil }},
		"its machine is cached": {
			live: []*v1alpha1.Machine{machine("n", "m", "m")}, shown: []*v1alpha1.Machine{machine("n", "m", "m")},
		},
		"its machine is not cached":      {live: []*v1alpha1.Machine{machine("elsewhere", "m", "m")}},
		"its machine has another name":   {live: []*v1alpha1.Machine{machine("n", "a", "m")}},
		"its machine no longer names it": {live: []*v1alpha1.Machine{machine("n", "m", "")}},
		"it names no machine, and a machine names it": {
			change: func(n *corev1.Node) { n.Labels = nil }, live: []*v1alpha1.Machine{machine("n", "a", "m")},
		},
		"it names no machine, and no machine names it": {change: func(n *corev1.Node) { n.Labels = nil }, released: true},
		"a machine of that name is in a namespace that is not served": {
			served: "n", live: []*v1alpha1.Machine{machine("elsewhere", "m", "m")}, released: true,
		},
		"the machine that it is bound to was deleted": {change: boundTo("n/m/u"), released: true},
		"the machine that it is bound to exists": {
			change: boundTo("n/m/u"), live: []*v1alpha1.Machine{machine("n", "m", "other")},
		},
		"the machine that it is bound to was created anew": {
			change: boundTo("n/m/before"), live: []*v1alpha1.Machine{machine("n", "m", "m")},
		},
		"the machine that it is bound to is cached": {
			change: boundTo("n/m/u"), live: []*v1alpha1.Machine{machine("n", "m", "m")}, shown: []*v1alpha1.Machine{machine("n", "m", "m")},
		},
		"it is bound, and one of another namespace names it": {
			change: boundTo("n/m/u"), live: []*v1alpha1.Machine{machine("forger", "m", "m")}, released: true,
		},
		"it is bound, and another machine that names it is cached": {
			change: boundTo("n/m/u"), live: []*v1alpha1.Machine{machine("forger", "m", "m")},
			forged: []*v1alpha1.Machine{machine("forger", "m", "m")}, released: true,
		},
		"it is bound to a machine in a namespace that is not served": {change: boundTo("elsewhere/m/u"), served: "n"},
		"another client has removed the finalizer": {
			change: func(n *corev1.Node) { n.Finalizers = []string{others} }, released: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t, tc.served, node(tc.change), tc.live...)
				for _, m := range slices.Concat(tc.shown, tc.forged) {
					b.view.Machines.Apply(m, false)
				}
				b.cluster.Nodes.Apply(b.node, false)
				b.expect(tc.released)
				if requests := b.control.Log(); tc.shown != nil && len(requests) > 0 {
					t.Errorf("requests %v for a cached machine, want none", requests)
				}
			})
		})
	}
}

// The machine of a Node that waits is deleted: a handler is called if it was cached; otherwise the
// controller polls.
func TestFinalizerIsRemovedWhenTheMachineIsDeleted(t *testing.T) {
	for name, shown := range map[string]bool{"cached": true, "not cached": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := machine("n", "m", "m")
				b := newBench(t, "", node(nil), m)
				if shown {
					b.view.Machines.Apply(m, false)
				}
				b.cluster.Nodes.Apply(b.node, false)
				b.expect(false)
				b.control.Delete("machines", "n", "m")
				if shown {
					b.view.Machines.Remove(objectcache.Key(m), "")
				} else {
					time.Sleep(machinePoll)
				}
				b.expect(true)
			})
		})
	}
}

// A Node that is being deleted has the place of another that was, too, and of which no cache has
// shown the end.
func TestFinalizerIsRemovedFromANodeInThePlaceOfAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		before := node(boundTo("n/m/u"))
		before.UID = "before"
		b := newBench(t, "", before)
		b.view.Machines.Apply(machine("n", "m", "m"), false)
		b.cluster.Nodes.Apply(b.node, false)
		b.expect(false)
		b.cluster.Nodes.Apply(apiserver.Add(b.target, node(boundTo("n/deleted/u"))), false)
		b.expect(true)
	})
}

// bench is a controller with two clusters.
type bench struct {
	*testing.T

	control, target *apiserver.Server
	node            *corev1.Node // as it is stored
	view            *objectcache.View
	cluster         *target.Cluster
}

func newBench(t *testing.T, served string, n *corev1.Node, machines ...*v1alpha1.Machine) *bench {
	t.Helper()
	b := &bench{T: t, control: apiserver.Recording(), target: apiserver.Recording(), view: objectcache.NewView()}
	for _, m := range machines {
		apiserver.Add(b.control, m)
	}
	b.node = apiserver.Add(b.target, n)
	b.cluster = target.New(b.target.Core())
	c, err := New(Config{
		Metadata: b.control.Metadata(), View: b.view, Targets: target.Single{Cluster: b.cluster}, Namespace: served, Clock: clock.RealClock{},
		Workers: 1,
	})
	if err != nil {
		t.Fatal(err)
	}
	go c.Run(t.Context())
	return b
}

// expect waits until no goroutine can continue, and checks that no other finalizer of the Node was
// changed.
func (b *bench) expect(released bool) {
	b.Helper()
	synctest.Wait()
	n := apiserver.Read[corev1.Node](b.target, "nodes", "", "m")
	if hasFinalizer := slices.Contains(n.Finalizers, v1alpha1.NodeFinalizerName); hasFinalizer == released ||
		!slices.Contains(n.Finalizers, others) {
		b.Errorf("its finalizers are %v, want ours removed: %t", n.Finalizers, released)
	}
}
