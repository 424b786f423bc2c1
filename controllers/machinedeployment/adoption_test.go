package machinedeployment

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/objectcache"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/apiserver"
)

// put creates MachineSet s with one replica, in the labels and with the template of the deployment,
// but without a hash.
func (b *bench) put(change func(*v1alpha1.MachineSet)) {
	b.Helper()
	labels := map[string]string{v1alpha1.LabelName: "d"}
	set := &v1alpha1.MachineSet{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "n", Name: "s", Labels: map[string]string{v1alpha1.LabelName: "d"}, Finalizers: []string{v1alpha1.FinalizerName},
		},
		Spec: v1alpha1.MachineSetSpec{
			Replicas: 1, Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: v1alpha1.MachineTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       v1alpha1.MachineSpec{Class: v1alpha1.ClassSpec{Kind: "MachineClass", Name: "c"}},
			},
		},
	}
	change(set)
	apiserver.Add(b.server, set)
}

// set is MachineSet s.
func (b *bench) set() *v1alpha1.MachineSet {
	b.Helper()
	set := apiserver.Read[v1alpha1.MachineSet](b.server, "machinesets", "n", "s")
	if set == nil {
		b.Fatal("the set is gone")
	}
	return set
}

func (b *bench) patchSet(format string, args ...any) {
	b.Helper()
	b.server.Merge("machinesets", "n", "s", fmt.Sprintf(format, args...))
}

// TestAdoption: a deployment adopts each set that matches its selector, has no controller, and
// stays; it is one of its sets then, the new one if it has the template. It does so also if the set
// is in another slot, which the cache does not show.
func TestAdoption(t *testing.T) {
	owned := func(controller bool) func(*v1alpha1.MachineSet) {
		return func(s *v1alpha1.MachineSet) {
			s.OwnerReferences = []metav1.OwnerReference{{Kind: "Other", Name: "other", UID: "other", Controller: &controller}}
		}
	}
	for name, tc := range map[string]struct {
		change  func(*v1alpha1.MachineSet)
		ending  bool
		adopted bool
		sizes   []int32 // of the deployment's sets
	}{
		"an orphan":                      {func(*v1alpha1.MachineSet) {}, false, true, []int32{2}},
		"of another template":            {func(s *v1alpha1.MachineSet) { s.Spec.Template.Spec.Class.Name = "old" }, false, true, []int32{0, 2}},
		"an owner that does not control": {owned(false), false, true, []int32{2}},
		"another controller's":           {owned(true), false, false, []int32{2}},
		"with other labels":              {func(s *v1alpha1.MachineSet) { s.Labels[v1alpha1.LabelName] = "other" }, false, false, []int32{2}},
		"without labels":                 {func(s *v1alpha1.MachineSet) { s.Labels = nil }, false, false, []int32{2}},
		"on its way out":                 {func(*v1alpha1.MachineSet) {}, true, false, []int32{2}},
	} {
		for _, shown := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, shown: %v", name, shown), func(t *testing.T) {
				onBench(t, func(b *bench) {
					b.put(tc.change)
					if tc.ending {
						b.server.Delete("machinesets", "n", "s")
					}
					if !shown {
						b.view.Sets.Remove(objectcache.Key(b.set()), "")
					}
					b.create()
					b.pass(time.Minute)
					set, d := b.set(), b.deployment()
					if got := metav1.IsControlledBy(set, d); got != tc.adopted {
						t.Fatalf("adopted: %v, want %v", got, tc.adopted)
					}
					if tc.adopted && set.OwnerReferences[0].UID != d.UID {
						t.Errorf("owners %v: the cluster-autoscaler reads the first", set.OwnerReferences)
					}
					var sizes []int32
					for _, s := range b.mine() {
						sizes = append(sizes, s.Spec.Replicas)
					}
					if slices.Sort(sizes); !slices.Equal(sizes, tc.sizes) {
						t.Errorf("the deployment's sets are of sizes %v, want %v", sizes, tc.sizes)
					}
				})
			})
		}
	}
}

// TestWhatComesLaterIsAdopted, too. It keeps its selector and template, without a hash, and its
// machines theirs.
func TestWhatComesLaterIsAdopted(t *testing.T) {
	onBench(t, func(b *bench) {
		b.create()
		b.put(func(s *v1alpha1.MachineSet) { s.Spec.Template.Spec.Class.Name = "old" })
		spec := b.set().Spec
		b.pass(time.Minute)
		set := b.set()
		if !metav1.IsControlledBy(set, b.deployment()) || set.Spec.Replicas != 0 {
			t.Errorf("its size is %d, its owners are %v", set.Spec.Replicas, set.OwnerReferences)
		}
		for _, labels := range []map[string]string{set.Labels, set.Spec.Selector.MatchLabels, set.Spec.Template.Labels} {
			if _, has := labels[v1alpha1.LabelMachineTemplateHash]; has ||
				labels[v1alpha1.LabelName] != spec.Selector.MatchLabels[v1alpha1.LabelName] {
				t.Errorf("labels %v", labels)
			}
		}
	})
}

// TestADeploymentThatGoesAdoptsNothing, even if the cache does not show yet that it goes.
func TestADeploymentThatGoesAdoptsNothing(t *testing.T) {
	onBench(t, func(b *bench) {
		b.create()
		b.patch(`{"metadata":{"finalizers":[%q,"n.example/stay"]}}`, v1alpha1.FinalizerName)
		b.pass(time.Minute)
		shown := b.deployment()
		b.server.Delete("machinedeployments", "n", "d")
		b.view.Deployments.Remove(objectcache.Key(shown), "")
		b.view.Deployments.Apply(shown, false)
		b.put(func(*v1alpha1.MachineSet) {})
		b.pass(time.Minute)
		if owner := metav1.GetControllerOf(b.set()); owner != nil {
			t.Errorf("it was adopted by %s", owner.Name)
		}
	})
}

// TestAdoptionThatIsRefused is tried again.
func TestAdoptionThatIsRefused(t *testing.T) {
	onBench(t, func(b *bench) {
		refused := 0
		b.server.Fault(func(r apiserver.Request) error {
			if r.Verb != "patch" || r.Name != "s" || refused == 3 {
				return nil
			}
			refused++
			return errors.New("not now")
		})
		b.put(func(*v1alpha1.MachineSet) {})
		b.create()
		b.pass(10 * time.Minute)
		if set := b.set(); refused != 3 || !metav1.IsControlledBy(set, b.deployment()) || len(b.mine()) != 1 {
			t.Errorf("refused %d times; its owners are %v, the deployment has %d sets", refused, set.OwnerReferences, len(b.mine()))
		}
	})
}

// hide moves MachineSet s to another slot: this process sees no event of it.
func (b *bench) hide() { b.view.Sets.Remove(types.NamespacedName{Namespace: "n", Name: "s"}, "") }

// A set in another slot is adopted although the first attempt fails: no event causes another one.
// The deployment is paused, so that it does not list its sets for another reason.
func TestASetInAnotherSlotIsAdoptedByTheNextAttempt(t *testing.T) {
	for name, fails := range map[string]func(b *bench) error{
		"it changes meanwhile": func(b *bench) error {
			b.patchSet(`{"metadata":{"labels":{"changed":"true"}}}`)
			b.hide()
			return nil
		},
		"the API server fails": func(*bench) error { return errors.New("not now") },
	} {
		t.Run(name, func(t *testing.T) {
			onBench(t, func(b *bench) {
				b.put(func(*v1alpha1.MachineSet) {})
				b.hide()
				done := false
				b.server.Fault(func(r apiserver.Request) error {
					if done || r.Verb != "patch" || r.Name != "s" {
						return nil
					}
					done = true
					return fails(b)
				})
				b.create(func(spec *v1alpha1.MachineDeploymentSpec) { spec.Paused = true })
				b.pass(10 * time.Minute)
				if set := b.set(); !metav1.IsControlledBy(set, b.deployment()) {
					t.Errorf("its owners are %v", set.OwnerReferences)
				}
			})
		})
	}
}

// A pass over a deployment ends after the event that it is gone.
func TestNothingIsRememberedOfADeploymentThatIsGone(t *testing.T) {
	onBench(t, func(b *bench) {
		b.server.Fault(func(r apiserver.Request) error {
			if r.Resource == "machinesets" && r.Verb == "create" {
				b.server.ShowIn(objectcache.NewView()) // the slot is lost
				b.view.Deployments.Remove(objectcache.Key(b.deployment()), "")
			}
			return nil
		})
		b.create()
		b.pass(time.Hour)
		d := b.deployment()
		if sets := b.server.List("machinesets"); len(sets) != 1 || len(b.view.Deployments.All()) > 0 {
			t.Fatal("the slot was not lost while a set was created")
		}
		_, looked := b.controller.orphansListed.Load(d.UID)
		_, unseen := b.controller.unseen.Load(d.UID)
		if looked || unseen {
			t.Errorf("it is remembered for which selector orphans were looked for: %t, and which sets the cache does not show: %t", looked, unseen)
		}
	})
}

// TestASetThatHasChangedIsAdopted as it is, though the cache shows it as it was, and none is
// created in its place.
func TestASetThatHasChangedIsAdopted(t *testing.T) {
	onBench(t, func(b *bench) {
		b.put(func(*v1alpha1.MachineSet) {})
		shown := b.set()
		b.server.Merge("machinesets", "n", "s", `{"metadata":{"labels":{"changed":"true"}}}`)
		b.view.Sets.Remove(objectcache.Key(shown), "")
		b.view.Sets.Apply(shown, false)
		b.create()
		b.pass(time.Minute)
		if set := b.set(); !metav1.IsControlledBy(set, b.deployment()) || len(b.mine()) != 1 {
			t.Errorf("its owners are %v, the deployment has %d sets", set.OwnerReferences, len(b.mine()))
		}
	})
}

// TestRelease: a set whose labels do not match any more is released unchanged, with its slot, and
// another one is created in its place; when they match again it is adopted once more.
func TestRelease(t *testing.T) {
	onBench(t, func(b *bench) {
		b.put(func(*v1alpha1.MachineSet) {})
		b.create()
		b.patchSet(`{"metadata":{"labels":{%q:"7"}}}`, v1alpha1.LabelSlot)
		b.pass(time.Minute)
		if !metav1.IsControlledBy(b.set(), b.deployment()) || len(b.mine()) != 1 {
			t.Fatalf("at first the deployment's sets are %v", b.mine())
		}

		b.patchSet(`{"metadata":{"labels":{%q:"quarantine"}}}`, v1alpha1.LabelName)
		b.pass(time.Minute)
		set := b.set()
		if set.DeletionTimestamp != nil || len(set.OwnerReferences) > 0 || set.Labels[v1alpha1.LabelSlot] != "" || set.Spec.Replicas != 2 {
			t.Errorf("it was not released unchanged: %+v", set)
		}
		mine := b.mine()
		if len(mine) != 1 || mine[0].Name == "s" || mine[0].Spec.Replicas != 2 {
			t.Errorf("the deployment's sets are %v, want another one of 2", mine)
		}

		b.patchSet(`{"metadata":{"labels":{%q:"d"}}}`, v1alpha1.LabelName)
		b.pass(time.Minute)
		if mine := b.mine(); !metav1.IsControlledBy(b.set(), b.deployment()) || len(mine) != 2 {
			t.Errorf("it was not adopted again: the deployment's sets are %v", mine)
		}
	})
}
