package slotcache

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"

	"github.com/machine-controller-fleet/machine-controller-fleet/internal/objectcache"
)

// within advances the time, and waits until everything that is due has happened.
func within(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// moment is enough time for a grant to become ready where nothing is delayed.
const moment = 2 * gather

func (b *bench) expectMachines(slots ...int) {
	b.Helper()
	got := map[string]string{}
	for _, m := range b.view.Machines.All() {
		got[m.Name] = m.ResourceVersion
	}
	want, bad := b.truth("machines", slots...)
	if diff := cmp.Diff(want, got); diff != "" {
		b.Errorf("machines: -want +got:\n%s", diff)
	}
	if diff := cmp.Diff(want, b.events.known); diff != "" {
		b.Errorf("known to handlers: -want +got:\n%s", diff)
	}
	got = map[string]string{}
	for _, f := range b.view.Machines.Undecodable.All() {
		got[f.Name] = f.ResourceVersion
	}
	if diff := cmp.Diff(bad, got); diff != "" {
		b.Errorf("machines that do not decode: -want +got:\n%s", diff)
	}
}

func (b *bench) expectWatches(want int) {
	b.Helper()
	if got := b.watches(); got["machines"] != want || got["machinesets"] != want {
		b.Errorf("open watches: %v, want %d of each", got, want)
	}
}

// An API server may answer a list from a cache that is behind, unless the list is consistent.
func TestListsAreConsistent(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.put("machines", key("deleted"), inSlot(1))
		b.put("machines", key("deleted"), nil)
		b.put("machines", key("m"), inSlot(1))
		b.put("machines", key("foreign"), inSlot(2))
		b.add(1)
		within(moment)
		b.expectMachines(1)
		b.events.expect("m >3")
		b.put("machines", key("m"), inSlot(1))
		b.change(func() { b.away = true })
		b.breakOff()
		b.put("machines", key("late"), inSlot(1))
		within(time.Minute)
		b.change(func() { b.away = false })
		within(time.Minute)
		b.expectMachines(1)
		if b.lax > 0 {
			b.Errorf("%d lists need not be consistent, want none", b.lax)
		}
		if b.streams > 0 {
			b.Errorf("%d streaming lists were requested, want none", b.streams)
		}
	})
}

// This includes the lists of a grant whose first list was short.
func TestListsArePaged(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.put("machines", key("first"), inSlot(1))
		b.add(1)
		within(moment)
		for i := range 2 * objectcache.Page {
			b.put("machines", key(fmt.Sprint("m", i)), inSlot(1))
		}
		synctest.Wait()
		b.change(func() { b.away = true })
		b.breakOff()
		b.change(func() { b.lists = 0 })
		within(time.Second)
		b.change(func() { b.away = false })
		within(time.Minute)
		b.expectMachines(1)
		if b.lists != 3+1 {
			b.Errorf("%d pages, want 3 of machines and 1 of MachineSets", b.lists)
		}
	})
}

func TestManagedFieldsAreDropped(t *testing.T) {
	inBubble(t, func(b *bench) {
		content := inSlot(1)
		content.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "somebody"}}
		b.put("machines", key("listed"), content)
		b.add(1)
		within(moment)
		b.put("machines", key("watched"), content)
		synctest.Wait()
		b.expectMachines(1)
		for _, m := range b.view.Machines.All() {
			if m.ManagedFields != nil {
				b.Errorf("%s has managed fields", m.Name)
			}
		}
	})
}

func TestHandlersAreNotCalledBeforeOpen(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.put("machines", key("m"), inSlot(1))
		b.set.Open([]int{1}) // a slot that was dropped
		b.set.Add([]int{1}, func([]int) {})
		within(moment)
		b.put("machines", key("m"), inSlot(1))
		b.put("machines", key("new"), inSlot(1))
		synctest.Wait()
		b.events.expect()
		if len(b.view.Machines.Of(1)) != 2 {
			b.Error("an object of a slot that is not open cannot be read")
		}
		b.set.Open([]int{1})
		b.events.expect("m >2", "new >3")
		b.set.Open([]int{1})
		b.events.expect("m >2", "new >3")
		b.put("machines", key("m"), inSlot(1))
		synctest.Wait()
		b.events.expect("m 2>4")
		b.expectMachines(1)
	})
}

func TestDropRemovesObjectsAtOnce(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.put("machines", key("a"), inSlot(1))
		b.put("machines", key("b"), inSlot(2))
		b.add(1, 2)
		within(moment)
		b.events.expect("a >1", "b >2")
		b.drop(1)
		b.events.expect("a 1>")
		b.expectMachines(2)
		b.put("machines", key("a"), inSlot(1))
		synctest.Wait()
		b.events.expect()
		b.drop(2)
		b.expectMachines()
		within(moment)
		b.expectWatches(0)
	})
}

// The watches of a grant go on to select slots of it that were dropped, so that an object which
// moves to one does not leave them.
func TestObjectMovesToADroppedSlot(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.put("machines", key("m"), inSlot(1))
		b.add(1, 2)
		within(moment)
		b.drop(2)
		b.events.expect("m >1")
		b.put("machines", key("m"), inSlot(2))
		synctest.Wait()
		b.events.expect("m 1>")
		b.expectMachines(1)
	})
}

// The callback of Add must not get slots that were dropped meanwhile.
func TestSlotsDroppedBeforeReadyAreNotReported(t *testing.T) {
	inBubble(t, func(b *bench) {
		release := b.block("list", "")
		b.add(1, 2, 3)
		b.drop(1)
		within(moment)
		b.add(1)
		b.drop(2)
		within(moment)
		b.add(4)
		b.drop(4)
		within(moment)
		release()
		within(moment)
		if slices.Sort(b.ready); !slices.Equal(b.ready, []int{1, 3}) {
			b.Errorf("ready: %v, want slots 1 and 3", b.ready)
		}
		b.expectWatches(2)
	})
}

// The slots of a merged grant that is not ready are ready by the grants that it replaces.
func TestUnlisted(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.threeGrants()
		release := b.block("list", "")
		within(mergeAfter)
		expect := func(want map[int]string) {
			t.Helper()
			if diff := cmp.Diff(want, b.set.Unlisted()); diff != "" {
				t.Errorf("unlisted (-want +got):\n%s", diff)
			}
		}
		b.add(4)
		expect(map[int]string{4: ""})
		within(moment)
		expect(map[int]string{4: "Machines"})
		release()
		within(moment)
		expect(map[int]string{})
	})
}

func TestSlotsAreReadyWhenAllKindsAreListed(t *testing.T) {
	ready := 0
	s, g := New(clock.RealClock{}), newGrant(1, []call{{[]int{1}, func([]int) { ready++ }}}, nil)
	g.unsynced = []string{"Machines", "MachineSets"}
	for want, kind := range []string{"Machines", "MachineSets"} {
		if s.synced(g, kind); ready != want {
			t.Errorf("reported %d times after %s were listed, want %d", ready, kind, want)
		}
	}
}

// Who was called with slots reads them without the Set's mu.
func TestSlotsThatWereReportedAsReadyStayAsTheyAreWhenOneIsDropped(t *testing.T) {
	var reported []int
	s, g := New(clock.RealClock{}), newGrant(1, []call{{[]int{1, 2}, func(slots []int) { reported = slots }}}, nil)
	s.grants, g.unsynced = []*grant{g}, []string{"Machines"}
	s.synced(g, "Machines")
	if s.Drop([]int{1}); !slices.Equal(reported, []int{1, 2}) {
		t.Errorf("reported as ready: %v after slot 1 was dropped, want still 1 and 2", reported)
	}
}

// An object moves to another slot of this replica, and the watches of the two grants show it in
// either order.
func TestObjectMovesBetweenGrants(t *testing.T) {
	for name, tc := range map[string]struct {
		late   int
		events []string
	}{
		"it leaves first":  {late: 2, events: []string{"m 1>", "m >2"}},
		"it appears first": {late: 1, events: []string{"m 1>2"}},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(b *bench) {
				b.put("machines", key("m"), inSlot(1))
				b.add(1)
				within(moment)
				b.add(2)
				within(moment)
				b.expectWatches(2)
				b.events.expect("m >1")
				release := b.block("watch", fmt.Sprintf("in (%d)", tc.late))
				b.put("machines", key("m"), inSlot(2))
				synctest.Wait()
				release()
				synctest.Wait()
				b.events.expect(tc.events...)
				b.expectMachines(1, 2)
			})
		})
	}
}

// Handlers get no event for an object in a slot that is not open, even if it was in an open slot
// before, and vice versa.
func TestObjectMovesBetweenOpenAndUnopenedSlots(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.add(1)
		within(moment)
		b.set.Add([]int{2}, func([]int) {})
		b.put("machines", key("leaves"), inSlot(1))
		b.put("machines", key("enters"), inSlot(2))
		within(moment)
		b.events.expect("leaves >1")
		release := b.block("watch", "in (1)") // appears in the other before it leaves
		b.put("machines", key("leaves"), inSlot(2))
		synctest.Wait()
		release()
		release = b.block("watch", "in (2)")
		b.put("machines", key("enters"), inSlot(1))
		synctest.Wait()
		release()
		synctest.Wait()
		b.events.expect("leaves 1>", "enters >4")
		b.set.Open([]int{2})
		b.events.expect("leaves >3")
		b.expectMachines(1, 2)
	})
}

func TestSlotsAcquiredTogetherShareAGrant(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.add(1)
		within(gather - time.Millisecond)
		b.add(2)
		within(time.Millisecond)
		b.expectWatches(1)
		if got := b.set.Grants(); len(got) != 1 || !slices.Equal(got[0], []int{1, 2}) {
			b.Errorf("grants %v, want one of slots 1 and 2", got)
		}
	})
}

func TestSlotsAcquiredOneByOneAreMerged(t *testing.T) {
	const slots = 256
	inBubble(t, func(b *bench) {
		var all []int
		for slot := range slots {
			all = append(all, slot)
			b.put("machines", key(fmt.Sprint("m", slot)), inSlot(slot))
		}
		b.delay = func() time.Duration { return 10 * time.Millisecond }
		for _, slot := range all {
			b.add(slot)
			time.Sleep(time.Second / slots)
		}
		within(time.Second)
		if slices.Sort(b.ready); !slices.Equal(b.ready, all) {
			b.Errorf("ready: %v, want each slot once", b.ready)
		}
		b.expectMachines(all...)
		within(10 * time.Second)
		if got := b.watches()["machines"]; got >= mergeAt {
			b.Errorf("%d watches of a kind after 10 s", got)
		}
		within(mergeAllAfter)
		b.expectWatches(1)
		if b.most > 2*maxGrants {
			b.Errorf("%d watches at a time, want at most %d of each of 2 kinds", b.most, maxGrants)
		}
		b.expectMachines(all...)
		if len(b.events.notes) != slots {
			b.Errorf("%d events, want one for each machine", len(b.events.notes))
		}
	})
}

// Where lists take long, slots that are acquired one by one wait for a place among the grants:
// there are never more than eight, of which one may be a merged one.
func TestSlotsWaitForAPlaceWhereListsTakeLong(t *testing.T) {
	for name, merges := range map[string]bool{"no grant is ready": false, "a merged grant is not ready": true} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(b *bench) {
				want, first := maxGrants-1, 1
				if merges {
					b.threeGrants()
					want, first = maxGrants, 4
				}
				release := b.block("list", "")
				within(mergeAfter)
				for slot := range 2 * maxGrants {
					b.add(first + slot)
					within(gatherMost + moment)
				}
				if got := len(b.set.Grants()); got != want {
					b.Errorf("%d grants, want %d", got, want)
				}
				release()
				within(2 * mergeAllAfter)
				b.expectWatches(1)
				if slices.Sort(b.ready); len(b.ready) != first-1+2*maxGrants || len(slices.Compact(b.ready)) != len(b.ready) {
					b.Errorf("ready: %v, want each slot once", b.ready)
				}
			})
		})
	}
}

// Slots that are acquired while two grants are listed become one grant.
func TestSlotsAreCollectedWhileGrantsAreListed(t *testing.T) {
	inBubble(t, func(b *bench) {
		release := b.block("list", "")
		for slot := range 5 {
			b.add(slot)
			within(moment)
		}
		release()
		within(moment)
		if diff := cmp.Diff([][]int{{0}, {1}, {2, 3, 4}}, b.set.Grants()); diff != "" {
			b.Errorf("grants (-want +got):\n%s", diff)
		}
		if slices.Sort(b.ready); !slices.Equal(b.ready, []int{0, 1, 2, 3, 4}) {
			b.Errorf("ready: %v, want each slot once", b.ready)
		}
	})
}

// A large grant is not listed again for small ones.
func TestSmallGrantsAreMerged(t *testing.T) {
	for _, tc := range []struct{ first, want []int }{{[]int{1, 2}, []int{4}}, {[]int{1, 2, 3}, []int{3, 2}}} {
		inBubble(t, func(b *bench) {
			for _, slots := range [][]int{tc.first, {8}, {9}} {
				b.add(slots...)
				within(moment)
			}
			within(mergeAllAfter / 2)
			var sizes []int
			for _, slots := range b.set.Grants() {
				sizes = append(sizes, len(slots))
			}
			if diff := cmp.Diff(tc.want, sizes); diff != "" {
				b.Errorf("sizes of grants (-want +got):\n%s", diff)
			}
		})
	}
}

func TestGrantIsReplacedWhenATenthOfItsSlotsIsDropped(t *testing.T) {
	inBubble(t, func(b *bench) {
		slots := make([]int, 20)
		for slot := range slots {
			slots[slot] = slot
			b.put("machines", key(fmt.Sprint("m", slot)), inSlot(slot))
		}
		b.add(slots...)
		within(moment)
		lists := b.lists
		b.drop(0)
		within(2 * mergeAllAfter)
		if b.lists != lists {
			b.Error("dropping 1 of 20 slots caused a list, want none")
		}
		b.drop(1)
		within(mergeAfter - time.Millisecond)
		if b.lists != lists {
			b.Error("a list before slots have settled")
		}
		within(moment)
		if b.lists != lists+2 {
			b.Errorf("%d more lists, want one of each of 2 kinds", b.lists-lists)
		}
		b.expectWatches(1)
		b.expectMachines(slots[2:]...)
		if got := b.set.Grants(); len(got) != 1 || !slices.Equal(got[0], slots[2:]) {
			b.Errorf("grants %v", got)
		}
	})
}
