package slotlabel

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/apiserver"
	"github.com/machine-controller-fleet/machine-controller-fleet/shard/slotlabel/policy"
)

// shutBench returns a bench that enqueues work and does none of it.
func shutBench(t *testing.T, held []int, objects ...*metav1.PartialObjectMetadata) *bench {
	t.Helper()
	b := stillBench(t, held, objects...)
	b.shut = true
	b.run()
	time.Sleep(time.Second)
	return b
}

func named(name string) types.NamespacedName { return types.NamespacedName{Namespace: "n", Name: name} }

func TestSlotsWhoseHolderMayLabelAnObject(t *testing.T) {
	objects := map[string]*metav1.PartialObjectMetadata{
		"a root":                            meta(policy.Set, "3-root", "", ""),
		"a set whose parent is cached":      meta(policy.Set, "2-set", "", "1"),
		"a machine below a set in no slot":  meta(policy.Machine, "3-below", "", "2-set"),
		"a machine of a set in a slot":      meta(policy.Machine, "3-of-a-set", "", "1-set"),
		"a set whose parent is not cached":  meta(policy.Set, "2-elsewhere", "", "0"),
		"a machine below that set":          meta(policy.Machine, "3-elsewhere", "", "2-elsewhere"),
		"a machine without its set":         meta(policy.Machine, "3-alone", "", "gone"),
		"a machine of a set that was reset": meta(policy.Machine, "3-of-another", "", "1-set"),
	}
	objects["a machine of a set that was reset"].OwnerReferences[0].UID = "a set of that name before"
	synctest.Test(t, func(t *testing.T) {
		world := []*metav1.PartialObjectMetadata{
			meta(policy.Deployment, "1", "1", ""), meta(policy.Set, "1-set", "1", "1"), meta(policy.Deployment, "0", "0", ""),
			meta(policy.Node, "2-node", "", ""),
		}
		for _, o := range objects {
			world = append(world, o)
		}
		b := shutBench(t, []int{1}, world...)
		for name, want := range map[string][]int{
			"a root":                            {3},
			"a set whose parent is cached":      {1},
			"a machine below a set in no slot":  {1},
			"a machine of a set in a slot":      {1},
			"a set whose parent is not cached":  {0, 2},
			"a machine below that set":          {0},
			"a machine without its set":         {3},
			"a machine of a set that was reset": {3},
		} {
			kind := policy.Machine
			if objects[name].Kind == policy.Set.String() {
				kind = policy.Set
			}
			var got []int
			for _, key := range b.labeler.keys(policy.Of(kind, objects[name])) {
				got = append(got, key.Slot)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", name, diff)
			}
		}
		b.enqueued()
		b.labeler.Opened([]int{2, 3})
		if diff := cmp.Diff([]int{2, 3}, b.enqueued()); diff != "" {
			t.Errorf("enqueued for slots that are served (-want +got):\n%s", diff)
		}
	})
}

func TestSeen(t *testing.T) {
	for name, test := range map[string]struct {
		seen          *metav1.PartialObjectMetadata
		atOnce, later []int // what is enqueued
		suspects      int
	}{
		"fits":                         {seen: meta(policy.Machine, "m", "1", "s")},
		"has lost its slot":            {seen: meta(policy.Machine, "m", "", "s")},
		"is mislabeled":                {seen: meta(policy.Machine, "m", "2", "s"), atOnce: []int{2}, suspects: 1},
		"is mislabeled, or has a root": {seen: meta(policy.Machine, "m", "2", "gone"), later: []int{2}, suspects: 1},
		"has an unlabeled child":       {seen: meta(policy.Set, "s", "1", "1"), atOnce: []int{1}},
		"has an unlabeled set":         {seen: meta(policy.Deployment, "1", "1", "")},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := shutBench(t, []int{1}, meta(policy.Deployment, "1", "1", ""), meta(policy.Set, "s", "1", "1"),
					meta(policy.Machine, "3-below", "", "s"), meta(policy.Set, "2-set", "", "1"), meta(policy.Machine, "3-root", "", ""))
				b.enqueued()
				kind := map[string]policy.Kind{
					"Machine": policy.Machine, "MachineSet": policy.Set, "MachineDeployment": policy.Deployment,
				}[test.seen.Kind]
				b.labeler.Seen(kind, test.seen)
				if diff := cmp.Diff(test.atOnce, b.enqueued()); diff != "" {
					t.Errorf("enqueued at once (-want +got):\n%s", diff)
				}
				time.Sleep(time.Minute)
				if diff := cmp.Diff(test.later, b.enqueued()); diff != "" {
					t.Errorf("enqueued later (-want +got):\n%s", diff)
				}
				if got := len(b.labeler.suspects); got != test.suspects {
					t.Errorf("%d suspects, want %d", got, test.suspects)
				}
			})
		})
	}
}

// moving returns trees in which some machines below the MachineDeployment 1 name slot 2.
func moving(machines ...string) []policy.Tree {
	objects := []policy.Object{
		policy.Of(policy.Deployment, meta(policy.Deployment, "1", "1", "")), policy.Of(policy.Set, meta(policy.Set, "s", "1", "1")),
	}
	for _, name := range machines {
		objects = append(objects, policy.Of(policy.Machine, meta(policy.Machine, name, "2", "s")))
	}
	return policy.Plant(objects, nil).Trees(slots())
}

// A machine that is handed over from slot 2 is admitted again when the caches show that it has left
// the slot, or belongs to it.
func TestSeenWhileItIsHandedOver(t *testing.T) {
	for name, test := range map[string]struct {
		slot, parent string
		want         bool
	}{
		"unlabeled":                {"", "s", false},
		"as before":                {"2", "s", false},
		"in its new slot":          {"1", "s", true},
		"in a tree of its slot":    {"2", "t", true},
		"in a slot, without a set": {"3", "gone", true},
	} {
		synctest.Test(t, func(t *testing.T) {
			b := shutBench(t, []int{1, 2}, meta(policy.Deployment, "1", "1", ""), meta(policy.Set, "s", "1", "1"), meta(policy.Set, "t", "2", "2"))
			b.labeler.blockMoving(Key{"n", 2}, moving("m"))
			gate := gateOf(b.labeler.Admission(), policy.Machine, openGate{}, func(types.NamespacedName) {})
			if _, _, ok := gate.Admit(t.Context(), named("m")); ok {
				t.Fatal("admitted although it is being handed over")
			}
			if b.labeler.arrived(object{policy.Machine, named("other")}, 1) {
				t.Error("an object that is not being handed over counts as one that has arrived")
			}
			b.labeler.Seen(policy.Machine, meta(policy.Machine, "m", test.slot, test.parent))
			if _, _, ok := gate.Admit(t.Context(), named("m")); ok != test.want {
				t.Errorf("%s: admitted %t, want %t", name, ok, test.want)
			}
		})
	}
}

func TestObjectsStayBlockedWhileTheyAreHandedOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, again, passes := shutBench(t, []int{2}), 0, 0
		gate := gateOf(b.labeler.Admission(), policy.Machine, openGate{}, func(types.NamespacedName) { again++ })
		admit := func(name string) (done func()) {
			_, done, ok := gate.Admit(t.Context(), named(name))
			if ok {
				passes++
			}
			return done
		}
		done := admit("a")
		if b.labeler.blockMoving(Key{"n", 2}, moving("a", "b", "c")) {
			t.Error("a pass runs, and it is not reported")
		}
		done()
		for range 2 {
			admit("a")
			admit("b")
			admit("c")
			if !b.labeler.blockMoving(Key{"n", 2}, moving("a", "b", "c")) {
				t.Error("no pass runs, and one is reported")
			}
		}
		if passes != 1 || again > 0 || len(b.labeler.handedOver) != 3 {
			t.Errorf("%d passes, want 1; %d keys are enqueued, want none; handed over: %v", passes, again, b.labeler.handedOver)
		}
	})
}

func TestLabelsThatAreNotWritten(t *testing.T) {
	b := idleBench(t, []int{2})
	b.control.Refuse("patch machines", errors.New("away"))
	trees := moving("a")
	if again, err := b.labeler.labelTrees(t.Context(), Key{"n", 2}, trees); again != recheckAfter || err == nil {
		t.Errorf("again after %v, %v; want %v and an error", again, err, recheckAfter)
	}
}

func TestNothingIsKeptOfWhatHasLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := shutBench(t, []int{1, 2}, meta(policy.Deployment, "1", "1", ""), meta(policy.Set, "s", "1", "1"),
			meta(policy.Machine, "3-below", "", "s"))
		b.labeler.blockMoving(Key{"n", 2}, moving("m"))
		b.labeler.refused[object{policy.Machine, named("m")}] = "by a webhook"
		again := b.rejected("1")
		b.labeler.Left(policy.Set, named("s"))
		if *again != 1 {
			t.Errorf("enqueued %d times after the parent of what it waits for has left, want once", *again)
		}
		b.rejected("1")
		b.labeler.Left(policy.Deployment, named("1"))
		b.labeler.Left(policy.Machine, named("m"))
		l := b.labeler
		if len(l.waits)+len(l.handedOver)+len(l.refused)+len(l.admission.rejected)+len(l.admission.blocked) > 0 {
			t.Errorf("kept: %v, %v, %v, %v, %v", l.waits, l.handedOver, l.refused, l.admission.rejected, l.admission.blocked)
		}
		b.setHeld(2, true)
		if _, err := l.reconcile(t.Context(), Key{"n", 2}); err != nil || len(l.blocked) > 0 {
			t.Errorf("still blocked: %v; %v", l.blocked, err)
		}
		if lists := b.control.Count("list machines"); lists != 1 {
			t.Errorf("%d lists of machines, want only that of the Watch", lists)
		}
	})
}

func TestUnlabeledObjectThatIsRemoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := shutBench(t, nil, meta(policy.Machine, "3-root", "", ""), meta(policy.Node, "2-node", "", ""))
		if diff := cmp.Diff([]int{3}, b.enqueued()); diff != "" {
			t.Errorf("enqueued when they appear (-want +got):\n%s", diff)
		}
		b.labeler.refused[object{policy.Machine, named("3-root")}] = "by a webhook"
		b.control.Remove("machines", "n", "3-root")
		if got := b.enqueued(); len(got)+len(b.labeler.refused) > 0 {
			t.Errorf("enqueued: %v, kept: %v", got, b.labeler.refused)
		}
	})
}

func TestNamespaceChanged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := shutBench(t, []int{1}, meta(policy.Machine, "3-root", "", ""), meta(policy.Deployment, "1", "1", ""))
		b.enqueued()
		b.labeler.suspect(Key{"n", 2}, object{policy.Machine, named("m")})
		b.labeler.suspect(Key{"other", 0}, object{policy.Machine, types.NamespacedName{Namespace: "other", Name: "m"}})
		b.served.Store(false)
		again := b.rejected("1")
		b.labeler.NamespaceChanged("n")
		if diff := cmp.Diff([]int{2, 3}, b.enqueued()); diff != "" || *again != 1 {
			t.Errorf("what was rejected is enqueued %d times, want once; slots (-want +got):\n%s", *again, diff)
		}
	})
}

func TestMayRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := stillBench(t, []int{1, 2}, meta(policy.Deployment, "1", "1", ""), meta(policy.Set, "s", "", "1"), meta(policy.Set, "1", "2", "2"),
			meta(policy.Machine, "1", "1", ""), meta(policy.Set, "2-set", "1", ""), meta(policy.Deployment, "3", "", ""))
		unlabeled := meta(policy.Deployment, "3", "", "")
		known := b.labeler.cfg.Known
		b.labeler.cfg.Known = func(kind policy.Kind, key types.NamespacedName) (metav1.Object, bool) {
			if kind == policy.Deployment && key.Name == "3" {
				return unlabeled, true // the caches show that it has lost its slot
			}
			return known(kind, key)
		}
		if !b.labeler.mayRun(policy.Machine, named("1")) || b.labeler.mayRun(policy.Deployment, named("2")) {
			t.Error("before the unlabeled objects are listed, machines may run, and other objects not")
		}
		b.shut = true
		b.run()
		time.Sleep(time.Second)
		b.control.Remove("machinedeployments", "n", "3")
		synctest.Wait()
		for _, test := range []struct {
			kind policy.Kind
			name string
			want bool
		}{
			{policy.Deployment, "1", false}, // an unlabeled MachineSet is below it
			{policy.Machine, "1", true},
			{policy.Set, "1", true}, // no root
			{policy.Set, "2-set", false},
			{policy.Deployment, "3", true},
		} {
			if got := b.labeler.mayRun(test.kind, named(test.name)); got != test.want {
				t.Errorf("%s %s: may run %t, want %t", test.kind, test.name, got, test.want)
			}
		}
	})
}

// With the slots of other replicas: regardless of what a pass finds, it reads the namespace again
// only while there is work for its slot.
func TestPassesEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, []int{2}, meta(policy.Deployment, "1", "1", ""), meta(policy.Set, "2-set", "", "1"), // for the holder of slot 1
			meta(policy.Deployment, "2", "2", ""), meta(policy.Set, "t", "3", "2"), // for that of slot 3
			meta(policy.Machine, "m", "2", "t"), meta(policy.Deployment, "2-root", "", ""))
		machine, _ := b.known(policy.Machine, named("m"))
		b.labeler.Seen(policy.Machine, machine) // whose set is not cached
		time.Sleep(time.Minute)
		synctest.Wait()
		if got := b.labels()["2-root"]; got != "2" || len(b.labeler.suspects) > 0 {
			t.Errorf("the root is in slot %q, want 2; the suspects that were read are kept: %v", got, b.labeler.suspects)
		}
		b.control.Forget()
		time.Sleep(time.Hour)
		if lists := b.control.Count("list *"); lists > 0 {
			t.Errorf("%d more lists", lists)
		}
	})
}

// What another holder labels in a labeled tree causes no event here.
func TestTreeThatWaitsForAnotherHolderIsReadAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, []int{1}, meta(policy.Deployment, "1", "", ""), meta(policy.Set, "s", "3", "1"))
		time.Sleep(time.Minute)
		apiserver.Add(b.control, meta(policy.Set, "s", "1", "1"))
		time.Sleep(recheckAfter)
		synctest.Wait()
		if got := b.labels()["1"]; got != "1" {
			t.Errorf("the root is in slot %q, want 1", got)
		}
	})
}
