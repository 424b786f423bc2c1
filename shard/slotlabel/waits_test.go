package slotlabel

import (
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/apiserver"
	"github.com/machine-controller-fleet/machine-controller-fleet/shard/slotlabel/policy"
)

// A root whose label was edited may still be reconciled in its own slot, until it is handed back to
// that slot.
func TestAMislabeledRootIsNotReconciledInTheSlotThatItNames(t *testing.T) {
	for _, kind := range []policy.Kind{policy.Deployment, policy.Set, policy.Machine} {
		t.Run(kind.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				root := meta(kind, "1", "2", "")
				root.Labels["pool"] = "b" // no parent adopts it
				b := newBench(t, []int{2}, root)
				key := types.NamespacedName{Namespace: "n", Name: "1"}
				gate := gateOf(b.labeler.Admission(), kind, openGate{}, func(types.NamespacedName) {})
				if _, _, ok := gate.Admit(t.Context(), key); ok {
					t.Error("admitted in the slot that it names")
				}
				b.labeler.Seen(kind, root)
				synctest.Wait() // without advancing the time
				if got := b.labels()["1"]; got != "1" {
					t.Errorf("it is in slot %s, want 1", got)
				}
			})
		})
	}
}

// rejected asserts that a MachineDeployment is rejected, and counts how often it is enqueued again.
func (b *bench) rejected(name string) (again *int) {
	b.t.Helper()
	again = new(int)
	gate := gateOf(b.labeler.Admission(), policy.Deployment, openGate{}, func(types.NamespacedName) { *again++ })
	if _, _, ok := gate.Admit(b.t.Context(), types.NamespacedName{Namespace: "n", Name: name}); ok {
		b.t.Errorf("%s is admitted", name)
	}
	return again
}

func TestRootWaitsOnlyForObjectsBelowIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		set := meta(policy.Set, "s", "", "1")
		b := newBench(t, nil, meta(policy.Deployment, "1", "1", ""), set, meta(policy.Deployment, "3", "", ""))
		again := b.rejected("1")
		b.control.Remove("machinesets", "n", "s")
		synctest.Wait()
		if *again != 1 || len(b.labeler.waits) > 0 {
			t.Errorf("enqueued %d times after the MachineSet was deleted, next to an unlabeled object that stays; waits: %v",
				*again, b.labeler.waits)
		}
	})
}

func TestRootIsReconciledAgainWhenAnUnlabeledChildGetsAnotherRoot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		set := meta(policy.Set, "s", "1", "1")
		b := newBench(t, nil, meta(policy.Deployment, "1", "1", ""), set, meta(policy.Machine, "m", "", "s"))
		b.setHeld(1, true)
		again := b.rejected("1")
		set = set.DeepCopy()
		set.OwnerReferences[0].Name, set.OwnerReferences[0].UID = "3", "3"
		b.labeler.Seen(policy.Set, apiserver.Add(b.control, set))
		synctest.Wait()
		if *again != 1 {
			t.Errorf("enqueued %d times after the MachineSet got another root", *again)
		}
	})
}

// No event that follows would enqueue the root.
func TestRootIsAdmittedOrEnqueuedWhenItsUnlabeledChildChangesDuringAdmit(t *testing.T) {
	for name, test := range map[string]struct{ during, after func(b *bench) }{
		"is deleted": { // it may have been labeled and deleted
			during: func(b *bench) { b.control.Remove("machines", "n", "m") },
		},
		"gets another root": {
			during: func(b *bench) { b.labeler.Seen(policy.Set, apiserver.Add(b.control, meta(policy.Set, "s", "1", "3"))) },
		},
		"gets another parent, which is deleted": {
			during: func(b *bench) { apiserver.Add(b.control, meta(policy.Machine, "m", "", "t")) },
			after:  func(b *bench) { b.labeler.Left(policy.Set, types.NamespacedName{Namespace: "n", Name: "t"}) },
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := shutBench(t, []int{1}, meta(policy.Deployment, "1", "1", ""), meta(policy.Set, "s", "1", "1"), meta(policy.Set, "t", "1", "1"),
					meta(policy.Machine, "m", "", "s"))
				known, requested := b.labeler.cfg.Known, false
				b.labeler.cfg.Known = func(kind policy.Kind, key types.NamespacedName) (metav1.Object, bool) {
					found, ok := known(kind, key)
					if kind == policy.Set && !requested {
						requested = true
						test.during(b)
						synctest.Wait()
					}
					return found, ok
				}
				again := 0
				gate := gateOf(b.labeler.Admission(), policy.Deployment, openGate{}, func(types.NamespacedName) { again++ })
				_, _, ok := gate.Admit(t.Context(), types.NamespacedName{Namespace: "n", Name: "1"})
				if test.after != nil {
					test.after(b)
				}
				if !ok && again == 0 {
					t.Error("rejected, and not enqueued again")
				}
			})
		})
	}
}

// The cache shows that an unlabeled object was deleted before the handler is called. A controller
// that is admitted in between must not leave other controllers unnotified that were rejected
// before.
func TestRootIsEnqueuedForAllControllersWhenOneFindsThatItsTreeFits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, []int{1}, meta(policy.Deployment, "1", "1", ""), meta(policy.Set, "s", "1", "1"))
		b.setHeld(1, false)
		apiserver.Add(b.control, meta(policy.Machine, "m", "", "s"))
		synctest.Wait()
		b.setHeld(1, true)
		again, later := 0, 0
		first := gateOf(b.labeler.Admission(), policy.Deployment, openGate{}, func(types.NamespacedName) { again++ })
		second := gateOf(b.labeler.Admission(), policy.Deployment, openGate{}, func(types.NamespacedName) { later++ })
		key := types.NamespacedName{Namespace: "n", Name: "1"}
		if _, _, ok := first.Admit(t.Context(), key); ok {
			t.Fatal("admitted although there is an unlabeled object below it")
		}
		store := b.labeler.cfg.Watch.informers[policy.Machine].GetStore()
		for _, unlabeled := range store.List() {
			if err := store.Delete(unlabeled); err != nil {
				t.Fatal(err)
			}
		}
		_, done, ok := second.Admit(t.Context(), key)
		if !ok {
			t.Fatal("rejected although there is no unlabeled object below it")
		}
		done()
		if again != 1 {
			t.Errorf("the first controller's key is enqueued %d times, want once", again)
		}
		later = 0
		if _, _, ok := second.Admit(t.Context(), key); !ok || later > 0 || len(b.labeler.waits) > 0 {
			t.Errorf("the next pass is admitted %t, and enqueues the key %d times, want none; waits: %v", ok, later, b.labeler.waits)
		}
	})
}

func TestMislabeledObjectIsHandedOverWhenItsNamespaceIsServed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		machine := meta(policy.Machine, "m", "2", "s")
		b := newBench(t, []int{2}, meta(policy.Deployment, "1", "1", ""), meta(policy.Set, "s", "1", "1"), machine)
		b.served.Store(false)
		b.labeler.Seen(policy.Machine, machine)
		time.Sleep(time.Minute)
		if got := b.labels()["m"]; got != "2" {
			t.Errorf("handed over to slot %s in a namespace that is not served", got)
		}
		b.served.Store(true)
		b.labeler.NamespaceChanged("n")
		synctest.Wait()
		if got := b.labels()["m"]; got != "1" {
			t.Errorf("in slot %s when its namespace is served, want 1", got)
		}
	})
}

// A machine that is gone, and that the caches still show in a wrong slot, causes a pass; while that
// reads the namespace, a MachineSet is edited.
func TestObjectMislabeledDuringAReadIsHandedOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, []int{1, 2}, meta(policy.Deployment, "1", "1", ""), meta(policy.Set, "s", "1", "1"))
		late := meta(policy.Machine, "m", "2", "s") // the caches show it, although it is gone
		known := b.labeler.cfg.Known
		b.labeler.cfg.Known = func(kind policy.Kind, key types.NamespacedName) (metav1.Object, bool) {
			if kind == policy.Machine {
				return late, true
			}
			return known(kind, key)
		}
		plant := b.labeler.reader.plant
		b.labeler.reader.plant = func(objects []policy.Object) *snapshot { // they are read by now
			b.labeler.reader.plant = plant
			b.control.Merge("machinesets", "n", "s", `{"metadata":{"labels":{"`+v1alpha1.LabelSlot+`":"2"}}}`)
			b.labeler.Seen(policy.Set, b.read(policy.Set, "s"))
			return plant(objects)
		}
		b.labeler.Seen(policy.Machine, late)
		time.Sleep(time.Minute)
		if got := b.labels()["s"]; got != "1" {
			t.Errorf("the MachineSet names slot %s, want 1", got)
		}
	})
}

// Both slots are held by this replica, and the machine is cached before its MachineSet.
func TestMachineMovedWithinAReplicaIsAdmittedInItsNewSlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, []int{1, 2}, meta(policy.Deployment, "1", "1", ""), meta(policy.Set, "s", "1", "1"), meta(policy.Machine, "m", "2", "s"))
		key := types.NamespacedName{Namespace: "n", Name: "m"}
		machine, _ := b.known(policy.Machine, key)
		b.labeler.Seen(policy.Machine, machine)
		time.Sleep(time.Minute)
		gate := gateOf(b.labeler.Admission(), policy.Machine, openGate{}, func(types.NamespacedName) {})
		if _, _, ok := gate.Admit(t.Context(), key); ok {
			t.Error("admitted before the caches show its root")
		}
		known := b.labeler.cfg.Known
		b.labeler.cfg.Known = func(kind policy.Kind, key types.NamespacedName) (metav1.Object, bool) {
			if kind == policy.Set {
				return nil, false
			}
			return known(kind, key)
		}
		machine, _ = known(policy.Machine, key)
		b.labeler.Seen(policy.Machine, machine)
		if _, _, ok := gate.Admit(t.Context(), key); !ok || machine.GetLabels()[v1alpha1.LabelSlot] != "1" {
			t.Errorf("not admitted in its slot; its labels are %v", machine.GetLabels())
		}
		if len(b.labeler.handedOver) > 0 {
			t.Errorf("still being handed over: %v", b.labeler.handedOver)
		}
	})
}

// An object is edited from slot 2 to slot 3, while the holder of both is about to hand it over to
// slot 1.
func TestObjectStaysBlockedForTheReplicaThatHandsItOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, []int{2, 3})
		machine := types.NamespacedName{Namespace: "n", Name: "m"}
		trees := func(slot string) []policy.Tree {
			return policy.Plant([]policy.Object{
				policy.Of(policy.Deployment, meta(policy.Deployment, "1", "1", "")), policy.Of(policy.Set, meta(policy.Set, "s", "1", "1")),
				policy.Of(policy.Machine, meta(policy.Machine, "m", slot, "s")),
			}, nil).Trees(slots())
		}
		before, now := Key{"n", 2}, Key{"n", 3}
		b.labeler.blockMoving(before, trees("2"))
		b.labeler.blockMoving(now, trees("3"))
		b.labeler.blockMoving(before, nil)
		gate := gateOf(b.labeler.Admission(), policy.Machine, openGate{}, func(types.NamespacedName) {})
		if _, _, ok := gate.Admit(t.Context(), machine); ok {
			t.Error("admitted while it is being handed over from the other slot")
		}
		b.labeler.blockMoving(now, nil)
		if _, _, ok := gate.Admit(t.Context(), machine); !ok {
			t.Error("not admitted after the hand-over was cancelled")
		}
		if len(b.labeler.blocked)+len(b.labeler.handedOver) > 0 {
			t.Errorf("kept: %v, %v", b.labeler.blocked, b.labeler.handedOver)
		}
	})
}

// The slot of a machine's own name may be held by another replica, which has no cache of the
// machine.
func TestMachineRequestsItsNamespaceInTheSlotOfItsRoot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, []int{1}, meta(policy.Set, "s", "1", "1"), meta(policy.Machine, "2-m", "1", "s"))
		requested := -1
		b.labeler.cfg.Served = func(_ string, slot int) bool {
			requested = slot
			return false
		}
		if b.labeler.mayRun(policy.Machine, types.NamespacedName{Namespace: "n", Name: "2-m"}) || requested != 1 {
			t.Errorf("asked in slot %d, want 1, or admitted where it is not served", requested)
		}
	})
}

// There may be many unlabeled objects, and each pass of a root looks for those below it.
func TestParentsOfUnlabeledObjectsAreLookedUpOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := shutBench(t, nil, meta(policy.Deployment, "1", "1", ""), meta(policy.Set, "1", "", ""),
			meta(policy.Machine, "a", "", ""), meta(policy.Machine, "b", "", "s"), meta(policy.Machine, "c", "", "s"),
			meta(policy.Machine, "d", "", "s"))
		lookups := 0
		b.labeler.cfg.Known = func(kind policy.Kind, _ types.NamespacedName) (metav1.Object, bool) {
			if kind == policy.Set {
				lookups++
			}
			return nil, false
		}
		b.rejected("1") // because of the MachineSet of the same name
		if lookups != 1 {
			t.Errorf("%d lookups of the MachineSet of three machines, want one", lookups)
		}
	})
}
