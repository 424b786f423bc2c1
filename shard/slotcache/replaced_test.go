package slotcache

import (
	"sync"
	"testing"
	"testing/synctest"

	"k8s.io/apimachinery/pkg/types"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/objectcache"
)

// The list of a merged grant shows an object of which the grants before have neither seen the
// deletion nor the next one of its name.
func TestObjectInThePlaceOfAnotherMergedGrantIsAhead(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.threeGrants()
		b.block("watch", "in (1)")
		b.put("machines", key("m1"), nil)
		b.put("machines", key("m1"), inSlot(1))
		within(mergeAfter + moment)
		b.events.expect("m1 1>", "m1 >5")
		b.expectMachines(1, 2, 3)
	})
}

// The next object of a name is in a slot of another grant, which shows it first.
func TestObjectInThePlaceOfAnotherInAnotherGrant(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.threeGrants()
		release := b.block("watch", "in (1)")
		b.put("machines", key("m1"), nil)
		b.put("machines", key("m1"), inSlot(2))
		synctest.Wait()
		b.events.expect("m1 1>", "m1 >5")
		release()
		synctest.Wait()
		b.events.expect()
		b.expectMachines(1, 2, 3)
	})
}

// Both are in the same slot, and the watch has missed the time between them.
func TestObjectInThePlaceOfAnotherIsFoundByARelist(t *testing.T) {
	view := objectcache.NewView()
	k := &kind[*v1alpha1.Machine]{store: view.Machines, holder: map[int]*sink[*v1alpha1.Machine]{}, opened: map[int]bool{1: true}}
	s := &sink[*v1alpha1.Machine]{kind: k, grant: newGrant(1, nil, nil), synced: sync.OnceFunc(func() {}), past: map[int]string{}}
	k.holder[1] = s
	events := &ledger{t: t, known: map[string]string{}, gone: map[string]string{}}
	view.Machines.OnChange(events.record)
	listed := func(uid types.UID, version string) []any {
		m := &v1alpha1.Machine{ObjectMeta: *inSlot(1)}
		m.Namespace, m.Name, m.UID, m.ResourceVersion = namespace, "m", uid, version
		return []any{m}
	}
	for _, list := range [][]any{listed("old", "1"), listed("new", "5")} {
		if err := s.Replace(list, "7"); err != nil {
			t.Fatal(err)
		}
	}
	events.expect("m >1", "m 1>", "m >5")
}
