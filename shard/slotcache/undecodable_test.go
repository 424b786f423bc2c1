package slotcache

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/decode"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/objectcache"
)

// undecodable is a spec that MCM's CRD allows and the Go type cannot decode.
const undecodable = `{"drainTimeout":"soon"}`

// reported records the objects that handlers receive as undecodable, with their versions. It is
// called before anything is stored.
func (b *bench) reported() func() []string {
	var notes []string
	b.view.Machines.Undecodable.OnChange(func(before, after *decode.Failure) {
		version := func(f *decode.Failure) string {
			if f == nil {
				return ""
			}
			return f.Name + f.ResourceVersion
		}
		notes = append(notes, version(before)+">"+version(after))
	})
	return func() []string {
		synctest.Wait()
		defer func() { notes = nil }()
		slices.Sort(notes)
		return notes
	}
}

func expect(t *testing.T, got []string, want ...string) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestListStoresObjectsNextToAnUndecodableOne(t *testing.T) {
	inBubble(t, func(b *bench) {
		reported := b.reported()
		b.put("machines", key("a"), inSlot(1))
		b.putSpec("machines", key("bad"), inSlot(1), undecodable)
		b.put("machines", key("c"), inSlot(1))
		b.put("machines", key("other"), inSlot(2))
		b.add(1, 2)
		within(moment)
		b.events.expect("a >1", "c >3", "other >4")
		expect(t, reported(), ">bad2")
		f, ok := b.view.Machines.Undecodable.Get(key("bad"))
		if want := `spec.drainTimeout: time: invalid duration "soon"`; !ok || f.Cause != want || f.Labels[v1alpha1.LabelSlot] != "1" {
			t.Errorf("undecodable: %+v, want the cause %q", f, want)
		}
		if !slices.Contains(b.ready, 1) || !slices.Contains(b.ready, 2) {
			t.Errorf("ready: %v, want 1 and 2", b.ready)
		}
	})
}

func TestWatchContinuesAfterAnUndecodableObject(t *testing.T) {
	inBubble(t, func(b *bench) {
		reported := b.reported()
		b.put("machines", key("a"), inSlot(1))
		b.put("machines", key("b"), inSlot(1))
		b.add(1)
		within(moment)
		b.change(func() { b.lists = 0 })
		b.events.expect("a >1", "b >2")
		b.putSpec("machines", key("a"), inSlot(1), undecodable)
		b.put("machines", key("b"), inSlot(1))
		b.putSpec("machines", key("new"), inSlot(1), undecodable)
		expect(t, reported(), ">a3", ">new5")
		b.events.expect("a 1>", "b 2>4")
		delete(b.events.gone, "a")
		b.put("machines", key("a"), inSlot(1)) // repaired
		b.putSpec("machines", key("new"), inSlot(1), undecodable)
		expect(t, reported(), "a3>", "new5>new7")
		b.events.expect("a >6")
		b.put("machines", key("new"), nil)
		expect(t, reported(), "new7>")
		if b.lists > 0 {
			t.Errorf("%d lists after the first, want none: a watch broke", b.lists)
		}
		if n := b.view.Machines.Undecodable.Len(); n > 0 {
			t.Errorf("%d objects are still stored as undecodable", n)
		}
	})
}

func TestUndecodableObjectIsReportedOncePerVersion(t *testing.T) {
	inBubble(t, func(b *bench) {
		reported := b.reported()
		b.putSpec("machines", key("bad"), inSlot(1), undecodable)
		b.add(1)
		within(moment)
		expect(t, reported(), ">bad1")
		for range 3 {
			b.change(func() { b.away = true })
			b.breakOff()
			within(time.Minute)
			b.change(func() { b.away = false })
			within(time.Minute)
		}
		expect(t, reported())
		b.add(2)
		within(2 * mergeAllAfter) // all grants are merged
		expect(t, reported())
		b.change(func() { b.away = true })
		b.breakOff()
		b.put("machines", key("bad"), nil)
		within(time.Second)
		b.change(func() { b.away = false })
		within(time.Minute)
		expect(t, reported(), "bad1>")
	})
}

func TestUndecodableObjectIsRemovedWithItsSlot(t *testing.T) {
	inBubble(t, func(b *bench) {
		reported := b.reported()
		b.putSpec("machines", key("bad"), inSlot(1), undecodable)
		b.set.Add([]int{1}, func([]int) {})
		within(moment)
		expect(t, reported())
		b.set.Open([]int{1})
		expect(t, reported(), ">bad1")
		b.drop(1)
		expect(t, reported(), "bad1>")
		b.add(1)
		within(moment)
		expect(t, reported(), ">bad1")
		b.putSpec("machines", key("bad"), inSlot(2), undecodable)
		expect(t, reported(), "bad1>")
	})
}

func TestPagingContinuesAfterUndecodableObjects(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.add(1)
		within(moment)
		b.change(func() { b.away = true })
		b.breakOff()
		for i := range 2*objectcache.Page + objectcache.Page/2 {
			spec := "{}"
			if i%100 == 0 {
				spec = undecodable
			}
			b.putSpec("machines", key(fmt.Sprintf("m%04d", i)), inSlot(1), spec)
		}
		b.change(func() { b.lists = 0 })
		within(time.Second)
		b.change(func() { b.away = false })
		within(time.Minute)
		if decoded, not := b.view.Machines.Len(), b.view.Machines.Undecodable.Len(); decoded != 2*objectcache.Page+objectcache.Page/2-13 ||
			not != 13 {
			t.Errorf("%d objects and %d undecodable ones, want 1237 and 13", decoded, not)
		}
		if b.lists != 3+1 {
			t.Errorf("%d pages, want 3 of machines and 1 of MachineSets", b.lists)
		}
		b.put("machines", key("m0000"), inSlot(1))
		synctest.Wait()
		if b.view.Machines.Undecodable.Len() != 12 {
			t.Error("the watch does not continue from the list")
		}
	})
}

// An event of a late watch of a merged grant must not overwrite newer versions from the grants that
// it replaces.
func TestOlderDecodableVersionIsIgnored(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.threeGrants()
		release := b.block("list", ofThree)
		releaseWatch := b.block("watch", ofThree)
		within(mergeAfter)
		b.put("machines", key("m1"), inSlot(1))
		b.putSpec("machines", key("m1"), inSlot(1), undecodable)
		synctest.Wait()
		release()
		synctest.Wait()
		releaseWatch()
		synctest.Wait()
		if f, ok := b.view.Machines.Undecodable.Get(key("m1")); !ok || f.ResourceVersion != "5" {
			t.Errorf("undecodable: %v, want version 5", f)
		}
		if _, ok := b.view.Machines.Get(key("m1")); ok {
			t.Error("it is also stored as decodable")
		}
	})
}

func TestClassesAreStoredNextToAnUndecodableOne(t *testing.T) {
	withClasses(t, func(b *classBench) {
		bad := types.NamespacedName{Namespace: "a", Name: "bad"}
		content := inSlot(1)
		content.Finalizers = []string{v1alpha1.FinalizerName}
		expectUndecodable := func(want int) {
			t.Helper()
			if n := b.view.Classes.Undecodable.Len(); n != want {
				t.Errorf("%d classes cannot be decoded, want %d", n, want)
			}
		}
		b.putClass("a", true)
		b.putSpec("machineclasses", bad, content, `{"capacity":{"cpu":"many"}}`)
		b.expectEnqueued("a/bad", "a/c")
		b.view.Deployments.Apply(&v1alpha1.MachineDeployment{ObjectMeta: in("a")}, false)
		b.expectStored("a/c")
		expectUndecodable(1)
		b.putSpec("machineclasses", bad, content, `{}`)
		b.expectStored("a/bad", "a/c")
		expectUndecodable(0)
		b.putSpec("machineclasses", bad, content, `{"capacity":7}`)
		b.expectStored("a/c")
		expectUndecodable(1)
		b.view.Deployments.Remove(types.NamespacedName{Namespace: "a", Name: "x"}, "")
		b.expectStored()
		expectUndecodable(0)
	})
}
