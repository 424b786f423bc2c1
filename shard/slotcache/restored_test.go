package slotcache

import (
	"testing"
	"time"
)

// A machine has moved from slot 3 to slot 1 since the backup, and slot 3 was lost: the list of the
// grant, which still selects slot 3, shows that the machine is not in slot 1.
func TestRestoredEtcdMovesAMachineToALostSlot(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.put("machines", key("m"), inSlot(3))
		b.put("machines", key("another"), inSlot(1))
		b.add(1, 3)
		within(moment)
		backup := b.Save()
		b.put("machines", key("m"), inSlot(1))
		within(moment)
		b.drop(3)
		b.expectMachines(1)
		b.Restore(backup)
		within(mergeAfter / 2)
		b.expectMachines(1)
	})
}

// The backup has an older version of one machine, another one that was deleted since, and lacks one
// that was created since. No later write shows what is stored now.
func TestRestoredEtcd(t *testing.T) {
	for _, tc := range []struct {
		name   string
		grants int // when etcd is restored
		before func(b *bench) (finish func())
	}{
		{"its watches end", 1, func(*bench) func() {
			within(mergeAfter + moment)
			return func() {}
		}},
		{"while grants are merged", 4, func(b *bench) func() {
			release := b.block("list", ofThree)
			within(mergeAfter)
			return func() {
				b.block("list", "in (1)")
				b.block("list", "in (2)")
				b.block("list", "in (3)")
				release()
			}
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			inBubble(t, func(b *bench) {
				b.threeGrants()
				backup := b.Save()
				finish := tc.before(b)
				if got := len(b.set.Grants()); got != tc.grants {
					b.Fatalf("%d grants, want %d", got, tc.grants)
				}
				b.put("machines", key("m1"), inSlot(1))
				b.put("machines", key("m2"), nil)
				b.put("machines", key("m4"), inSlot(3))
				within(moment)
				b.events.expect("m1 1>4", "m2 2>", "m4 >6")
				b.events.mayLag = func(string) bool { return true }
				b.Restore(backup)
				finish()
				within(time.Minute)
				b.events.expect("m1 4>1", "m2 >2", "m4 6>")
				b.expectMachines(1, 2, 3)
				b.put("machines", key("m1"), inSlot(1))
				within(moment)
				b.expectMachines(1, 2, 3)
			})
		})
	}
}
