package slotcache

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// threeGrants adds three grants, which are merged after a while without changes. Their slots are 1,
// 2 and 3, each with a machine.
func (b *bench) threeGrants() {
	for slot := 1; slot <= 3; slot++ {
		b.put("machines", key(fmt.Sprint("m", slot)), inSlot(slot))
		b.add(slot)
		within(moment)
	}
	b.expectWatches(3)
	b.events.expect("m1 >1", "m2 >2", "m3 >3")
}

const ofThree = "in (1,2,3)" // part of the selector of the merged grant

// The list of a merged grant may be older than what the grants that it replaces have received, and
// its watch begins at that version.
func TestAMergedGrantIsBehind(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.threeGrants()
		release := b.block("list", ofThree)
		releaseWatch := b.block("watch", ofThree)
		within(mergeAfter)
		b.put("machines", key("m1"), inSlot(1))
		b.put("machines", key("m1"), nil)
		b.put("machines", key("m2"), inSlot(2))
		b.put("machines", key("m3"), inSlot(1))
		b.put("machines", key("m4"), inSlot(1))
		synctest.Wait()
		b.events.notes = nil // the handlers have received all of these events
		b.expectMachines(1, 2, 3)
		release()
		synctest.Wait()
		b.expectWatches(1)
		b.events.expect()
		releaseWatch()
		synctest.Wait()
		b.events.expect()
		b.put("machines", key("m2"), inSlot(2))
		b.put("machines", key("m4"), nil)
		synctest.Wait()
		b.events.expect("m2 6>9", "m4 8>")
		b.expectMachines(1, 2, 3)
	})
}

// A grant has listed again after the list of the merged one, and found a machine missing.
func TestAMergedGrantIsBehindAList(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.threeGrants()
		release := b.block("list", ofThree)
		within(mergeAfter)
		b.change(func() { b.away = true })
		b.breakOff()
		b.put("machines", key("m1"), nil)
		b.change(func() { b.away = false })
		within(time.Minute)
		b.events.expect("m1 1>")
		release()
		synctest.Wait()
		b.events.expect()
		b.expectMachines(1, 2, 3)
	})
}

// The grants may be behind the list of the merged grant that replaces them.
func TestAMergedGrantIsAhead(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.threeGrants()
		b.block("watch", "in (1)")
		b.block("watch", "in (2)")
		b.put("machines", key("m1"), nil)
		b.put("machines", key("m2"), inSlot(3))
		within(mergeAfter + moment)
		b.events.expect("m1 1>", "m2 2>5")
		b.expectMachines(1, 2, 3)
	})
}

func TestDroppedAndAddedWhileMerging(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.threeGrants()
		release := b.block("list", ofThree)
		within(mergeAfter)
		b.drop(2)
		b.add(2)
		within(moment)
		b.events.expect("m2 2>", "m2 >2")
		within(mergeAfter)
		if got := len(b.set.Grants()); got != 4 {
			b.Errorf("%d grants, want 4: one merges at a time", got)
		}
		b.put("machines", key("m2"), inSlot(2))
		synctest.Wait()
		release()
		synctest.Wait()
		b.expectWatches(2)
		b.put("machines", key("m1"), inSlot(1))
		b.put("machines", key("m2"), inSlot(2))
		synctest.Wait()
		b.events.expect("m1 1>5", "m2 2>4", "m2 4>6")
		b.expectMachines(1, 2, 3)
		within(2 * mergeAllAfter)
		b.events.expect()
		b.expectWatches(1)
		if want := []int{1, 2, 3, 2}; !slices.Equal(b.ready, want) {
			b.Errorf("ready: %v, want %v", b.ready, want)
		}
	})
}

func TestAllDroppedWhileMerging(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.threeGrants()
		release := b.block("list", ofThree)
		within(mergeAfter)
		b.drop(1, 2, 3)
		within(moment)
		b.expectWatches(0)
		b.expectMachines()
		release()
		for slot := 1; slot <= 3; slot++ {
			b.add(slot)
			within(moment)
		}
		b.expectMachines(1, 2, 3)
		within(mergeAfter)
		b.expectWatches(1)
	})
}

func TestServerIsUnavailableWhileMerging(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.threeGrants()
		b.change(func() { b.away = true })
		b.breakOff()
		within(time.Minute)
		b.drop(3)
		b.add(3, 4)
		within(time.Minute)
		b.events.expect("m3 3>")
		b.put("machines", key("m1"), nil)
		b.put("machines", key("m4"), inSlot(4))
		b.change(func() { b.away = false })
		within(time.Minute)
		b.expectMachines(1, 2, 3, 4)
		b.events.expect("m1 1>", "m3 >3", "m4 >5")
		within(2 * mergeAllAfter)
		b.events.expect()
		b.expectWatches(1)
	})
}

// Slots are acquired and dropped while grants merge, machines are written nearly all the time, and
// every answer is delayed. The ledger finds duplicate events; missing events are found by the
// comparisons in pauses, and at the end.
func TestCacheIsCompleteUnderLoad(t *testing.T) {
	for seed := range uint64(20) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			inBubble(t, func(b *bench) { b.load(rand.New(rand.NewPCG(seed, 0))) })
		})
	}
}

const loadSlots, loadMachines = 24, 60

func (b *bench) load(random *rand.Rand) {
	b.delay = func() time.Duration { return rand.N(60 * time.Millisecond) }
	b.events.mayLag = func(name string) bool { return strings.HasPrefix(name, "moved") }
	held, exists := map[int]bool{}, map[types.NamespacedName]bool{}
	for range 1500 {
		machine := random.IntN(loadMachines)
		slot, name := machine%loadSlots, key(fmt.Sprint("m", machine))
		if machine < loadMachines/6 {
			slot, name = random.IntN(loadSlots), key(fmt.Sprint("moved", machine))
		}
		if exists[name] && random.IntN(4) == 0 {
			exists[name] = false
			b.put("machines", name, nil)
		} else {
			exists[name] = true
			spec := "{}"
			if random.IntN(10) == 0 {
				spec = undecodable
			}
			b.putSpec("machines", name, inSlot(slot), spec)
		}
		if slot := random.IntN(loadSlots); random.IntN(12) == 0 {
			if held[slot] {
				b.drop(slot)
			} else {
				b.add(slot)
			}
			held[slot] = !held[slot]
		}
		time.Sleep(rand.N(10 * time.Millisecond))
		if random.IntN(30) == 0 { // all events arrive
			within(rand.N(2*mergeAfter) + 20*time.Second)
			b.expectMachines(keysOf(held)...)
		}
	}
	within(2 * mergeAllAfter)
	b.expectMachines(keysOf(held)...)
	b.expectWatches(1)
	if b.most > 2*maxGrants {
		b.Errorf("%d watches at a time, want at most %d of each of 2 kinds", b.most, maxGrants)
	}
}

func keysOf(set map[int]bool) (keys []int) {
	for key, is := range set {
		if is {
			keys = append(keys, key)
		}
	}
	return keys
}
