package machine

import (
	"context"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/machine-controller-fleet/machine-controller-fleet/driver"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/fakecloud"
)

func TestMemory(t *testing.T) {
	type entry struct{ a, b string }
	m := newMemory[types.UID, entry]()
	m.change("1", func(e *entry) { e.a = "a" })
	m.change("1", func(e *entry) { e.b = "b" })
	m.change("2", func(e *entry) { e.a = "other" })
	if got := m.of("1"); got != (entry{"a", "b"}) {
		t.Errorf("an entry keeps the fields that a change leaves alone: %+v", got)
	}
	if got := m.of("3"); got != (entry{}) || m.size() != 2 {
		t.Errorf("reading adds no entry: %+v, %d entries", got, m.size())
	}
	m.change("1", func(e *entry) { *e = entry{} })
	if m.change("3", func(*entry) {}); m.size() != 1 {
		t.Errorf("an entry with nothing in it takes room: %d entries, want 1", m.size())
	}
	if m.forget("2"); m.size() != 0 {
		t.Errorf("after the last was forgotten there are %d entries", m.size())
	}
	var changes sync.WaitGroup
	for range 100 {
		changes.Go(func() { m.change("4", func(e *entry) { e.a += "x" }) })
	}
	if changes.Wait(); len(m.of("4").a) != 100 {
		t.Errorf("changes were lost: %d of 100", len(m.of("4").a))
	}
}

// leftInMemory returns what the process remembers of machines.
func (b *bench) leftInMemory() (entries, claims, drains int) {
	c := b.process
	return c.memory.size() + c.tokens.store.Len(), c.nodes.claims.size(), c.drains.Len()
}

func TestMemoryAfterAMachineIsGoneIsEmpty(t *testing.T) {
	onBench(t, func(b *bench) {
		b.runs()
		if entries, _, _ := b.leftInMemory(); entries != 1 {
			b.Errorf("%d entries while there is one machine", entries)
		}
		uid := b.get().UID
		b.process.memory.change(uid, func(is *remembered) { // each field that its life has not left already
			is.lastingError.since, is.refused.why, is.claims.node, is.ending.since = time.Now(), "why", "node", time.Now()
		})
		b.process.nodes.claims.change(types.NamespacedName{Name: "m"}, func(is *claim) { is.at = time.Now() })
		b.delete()
		b.pass(time.Hour)
		if b.get() != nil {
			b.Fatalf("the machine is there still: %+v", b.get().Status)
		}
		if entries, claims, drains := b.leftInMemory(); entries+claims+drains > 0 {
			b.Errorf("left are %d entries, %d claims and %d drains", entries, claims, drains)
		}
	})
}

// TestMemoryOfAMachineThatGoesDuringItsPassIsEmpty: what a pass remembers after the event that the
// machine is gone is forgotten when the pass ends, for there is no event after that.
func TestMemoryOfAMachineThatGoesDuringItsPassIsEmpty(t *testing.T) {
	onBench(t, func(b *bench) {
		b.cloud.Way = func(_ context.Context, call fakecloud.Call, send func() error) error {
			if call.Op != driver.OpCreate {
				return send()
			}
			b.delete()
			b.patchMachine(`{"metadata":{"finalizers":null}}`)
			time.Sleep(time.Second) // until the process knows
			if entries, _, _ := b.leftInMemory(); b.get() != nil || entries > 0 {
				b.Errorf("the machine is there still, or %d entries are", entries)
			}
			return send()
		}
		b.create()
		b.pass(time.Hour)
		if _, ever := b.cloud.VMs(); ever != 1 {
			b.Fatalf("%d VMs were created, want 1", ever)
		}
		if entries, claims, drains := b.leftInMemory(); entries+claims+drains > 0 {
			b.Errorf("left are %d entries, %d claims and %d drains", entries, claims, drains)
		}
	})
}

// size returns how many entries there are.
func (m *memory[K, E]) size() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.entries)
}
