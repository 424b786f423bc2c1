package render

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/fleet/v1alpha1"
	machinev1alpha1 "github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
)

const (
	// soon is when a change that ends a wait has had its effect, at the latest.
	soon = releasePause + time.Second
	// long has lists without a change in it, and ends halfway to the next.
	long = 6*releaseEvery + releaseEvery/2
)

// cachedNode returns a Node as the caches of the replica have it.
func cachedNode(name, desired string) *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{v1alpha1.DaemonPrefix.DesiredConfig(): desired}},
	}
}

func naming(config string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: "x", Name: "m", Annotations: map[string]string{v1alpha1.AnnotationMachineConfig: config}}
}

// expectLists compares how often Nodes were listed since then with at most so many.
func (b *bench) expectLists(since, most int) {
	b.Helper()
	if n := b.Reads("nodes") - since; n > most {
		b.Errorf("%d lists of Nodes, want %d at most", n, most)
	}
}

// A user deletes what a Node names: it stays until the Node names another one.
func TestRenderedInUseIsNotReleased(t *testing.T) {
	run(t, func(b *bench) {
		first := b.started()
		b.rolled(1)
		b.completes()
		b.Put("nodes", node("n1", first))
		b.nodes.Apply(cachedNode("n1", first), false)
		b.Server.Delete("renderedmachineconfigs", "", first)
		lists := b.Reads("nodes")
		b.After(long)
		if !slices.Contains(b.Names("renderedmachineconfigs"), first) {
			b.Fatal("it is gone although a Node names it")
		}
		b.expectLists(lists, int(long/releaseEvery)+1)
		b.Put("nodes", node("n1", "another"))
		b.nodes.Apply(cachedNode("n1", "another"), false)
		b.After(soon)
		if slices.Contains(b.Names("renderedmachineconfigs"), first) {
			b.Error("it is still there although nothing names it")
		}
		lists = b.Reads("nodes")
		b.After(24 * time.Hour)
		b.expectLists(lists, 0)
	})
}

// A pause is no reason to keep what a user deletes.
func TestRenderedOfAPausedPoolIsReleased(t *testing.T) {
	run(t, func(b *bench) {
		first := b.started()
		b.rolled(1)
		b.completes()
		b.Edit("machineconfigpools", "p", func(u *unstructured.Unstructured) {
			if err := unstructured.SetNestedField(u.Object, true, "spec", "paused"); err != nil {
				b.Fatal(err)
			}
		})
		b.Server.Delete("renderedmachineconfigs", "", first)
		b.After(soon)
		if slices.Contains(b.Names("renderedmachineconfigs"), first) {
			b.Error("it is there although nothing names it")
		}
		lists := b.Reads("nodes")
		b.After(24 * time.Hour)
		b.expectLists(lists, 0)
	})
}

// What a user deletes soon after another one is not kept until the next list without a change.
func TestUnusedRenderedAreReleasedOneAfterTheOther(t *testing.T) {
	run(t, func(b *bench) {
		targets := append([]string{b.started()}, b.rolled(2)...)
		b.completes()
		for _, unused := range targets[:2] {
			b.Server.Delete("renderedmachineconfigs", "", unused)
			b.After(soon)
			if slices.Contains(b.Names("renderedmachineconfigs"), unused) {
				b.Errorf("%s is still there although nothing names it", unused)
			}
		}
	})
}

// A list that fails is sent again with the back-off of errors.
func TestFailedListIsRepeated(t *testing.T) {
	run(t, func(b *bench) {
		targets := append([]string{b.started()}, b.rolled(2)...)
		b.completes()
		b.Server.Delete("renderedmachineconfigs", "", targets[0])
		b.After(time.Minute)
		b.Fail(func(request string) bool { return request == "GET nodes" })
		b.Server.Delete("renderedmachineconfigs", "", targets[1])
		b.After(time.Minute)
		if !slices.Contains(b.Names("renderedmachineconfigs"), targets[1]) {
			t.Fatal("released although Nodes cannot be listed")
		}
		b.Fail(nil)
		b.After(time.Minute)
		if slices.Contains(b.Names("renderedmachineconfigs"), targets[1]) {
			t.Error("it is still there although Nodes can be listed again")
		}
	})
}

// A pool that is deleted goes when no Node names one of its RenderedMachineConfigs, and these go
// before it.
func TestPoolIsReleasedWhenNothingNamesItsConfigs(t *testing.T) {
	run(t, func(b *bench) {
		first := b.started()
		b.Put("nodes", node("n1", first))
		b.nodes.Apply(cachedNode("n1", first), false)
		b.Server.Delete("machineconfigpools", "", "p")
		lists := b.Reads("nodes")
		b.After(long)
		if len(b.Names("machineconfigpools")) != 1 || len(b.Names("renderedmachineconfigs")) != 1 {
			b.Fatal("deleted although a Node names its configuration")
		}
		b.expectLists(lists, int(long/releaseEvery)+1)
		if said := b.Recorder.Take(); len(said) == 0 || !strings.HasPrefix(said[0], "PoolInUse: ") {
			b.Errorf("Events %q", said)
		}
		b.Server.Delete("nodes", "", "n1")
		b.nodes.Remove(types.NamespacedName{Name: "n1"}, "")
		b.After(soon)
		b.expectGone()
	})
}

func (b *bench) expectGone() {
	b.Helper()
	if pools, rendered := b.Names("machineconfigpools"), b.Names("renderedmachineconfigs"); slices.Contains(pools, "p") || len(rendered) > 0 {
		b.Errorf("left are pools %v and RenderedMachineConfigs %v", pools, rendered)
	}
}

// Each change that can end the wait of a pool does so without a timer, and one that cannot causes
// no list.
func TestChangesEndTheWaitOfAPool(t *testing.T) {
	machine := func(config string) *machinev1alpha1.Machine {
		return &machinev1alpha1.Machine{ObjectMeta: naming(config)}
	}
	set := func(config string) *machinev1alpha1.MachineSet {
		s := &machinev1alpha1.MachineSet{ObjectMeta: metav1.ObjectMeta{Namespace: "x", Name: "m"}}
		s.Spec.Template.Annotations = naming(config).Annotations
		return s
	}
	deployment := func(config string) *machinev1alpha1.MachineDeployment {
		d := &machinev1alpha1.MachineDeployment{ObjectMeta: metav1.ObjectMeta{Namespace: "x", Name: "m"}}
		d.Spec.Template.Annotations = naming(config).Annotations
		return d
	}
	counts := func(b *bench, field string, n int64) {
		b.Edit("machineconfigpools", "other", func(u *unstructured.Unstructured) {
			if err := unstructured.SetNestedField(u.Object, n, "status", field); err != nil {
				b.Fatal(err)
			}
		})
	}
	for name, tc := range map[string]struct {
		begins func(b *bench, config string)
		ends   func(b *bench)
		idle   bool // that is nothing to look at
	}{
		"a Node of the pool": {
			func(b *bench, config string) { b.NodeChanged(nil, cachedNode("n1", config)) },
			func(b *bench) { b.NodeChanged(cachedNode("n1", b.Names("renderedmachineconfigs")[0]), nil) }, false,
		},
		"a Machine is deleted": {
			func(b *bench, config string) { b.view.Machines.Put(machine(config), false) },
			func(b *bench) { b.view.Machines.Delete(types.NamespacedName{Namespace: "x", Name: "m"}, "") }, false,
		},
		"a Machine names another": {
			func(b *bench, config string) { b.view.Machines.Put(machine(config), false) },
			func(b *bench) { b.view.Machines.Put(machine("another"), false) }, false,
		},
		"a MachineSet": {
			func(b *bench, config string) { b.view.Sets.Put(set(config), false) },
			func(b *bench) { b.view.Sets.Put(set("another"), false) }, false,
		},
		"a MachineDeployment": {
			func(b *bench, config string) { b.view.Deployments.Put(deployment(config), false) },
			func(b *bench) { b.view.Deployments.Put(deployment("another"), false) }, false,
		},
		"a Node has the target of another pool": {
			func(b *bench, _ string) { counts(b, "updatingMachines", 1) },
			func(b *bench) { counts(b, "updatingMachines", 2) }, false,
		},
		"a Node of another pool is deleted": {
			func(b *bench, _ string) { counts(b, "machineCount", 2) },
			func(b *bench) { counts(b, "machineCount", 1) }, false,
		},
		"the condition of a Node": {
			func(b *bench, config string) { b.nodes.Apply(cachedNode("n1", config), false) },
			func(b *bench) {
				n := cachedNode("n1", b.Names("renderedmachineconfigs")[0])
				n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady}}
				b.nodes.Apply(n, false)
			}, true,
		},
		"a Node that names a configuration of another pool": {
			func(b *bench, _ string) { b.nodes.Apply(cachedNode("n2", "another"), false) },
			func(b *bench) { b.nodes.Remove(types.NamespacedName{Name: "n2"}, "") }, true,
		},
		"a Machine appears": {
			func(*bench, string) {},
			func(b *bench) { b.view.Machines.Put(machine("another"), false) }, true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			run(t, func(b *bench) {
				b.Put("machineconfigpools", pool("other"))
				first := b.started()
				tc.begins(b, first)
				b.Put("nodes", node("n1", first))
				b.Server.Delete("machineconfigpools", "", "p")
				b.After(long)
				lists := b.Reads("nodes")
				b.Server.Delete("nodes", "", "n1")
				tc.ends(b)
				b.After(soon)
				if tc.idle {
					b.expectLists(lists, 0)
					b.After(releaseEvery)
				}
				b.expectGone()
			})
		})
	}
}

// However many changes there are, lists have a pause between them; the last change is followed by
// one.
func TestListsOfAWaitingPoolAreBounded(t *testing.T) {
	run(t, func(b *bench) {
		first := b.started()
		const nodes = 300
		for i := range nodes {
			name := fmt.Sprintf("n%d", i)
			b.Put("nodes", node(name, first))
			b.nodes.Apply(cachedNode(name, first), false)
		}
		b.Server.Delete("machineconfigpools", "", "p")
		b.After(time.Minute)
		lists := b.Reads("nodes")
		for i := range nodes {
			name := fmt.Sprintf("n%d", i)
			b.Server.Delete("nodes", "", name)
			b.nodes.Remove(types.NamespacedName{Name: name}, "")
			b.After(time.Second)
		}
		b.After(soon)
		b.expectLists(lists, nodes/int(releasePause/time.Second)+2)
		b.expectGone()
	})
}
