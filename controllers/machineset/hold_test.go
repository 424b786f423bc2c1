package machineset

import (
	"sync/atomic"
	"testing"
	"time"
)

// While deletions are held, a set that is scaled down keeps the machines that run. When the hold ends they are deleted at once.
func TestHoldKeepsMachines(t *testing.T) {
	var held atomic.Bool
	held.Store(true)
	onBench(t, func(b *bench) {
		b.create(3)
		for _, m := range b.machines() {
			b.runs(m.Name)
		}
		b.patch(`{"spec":{"replicas":1}}`)
		b.pass(time.Hour)
		if n := len(b.machines()); n != 3 {
			b.Errorf("%d machines while deletions are held, want 3", n)
		}
		held.Store(false)
		b.controller.HoldChanged("other")
		b.pass(time.Second)
		if n := b.standing(); n != 3 {
			b.Errorf("%d machines after a change in another namespace, want 3", n)
		}
		b.controller.HoldChanged("n")
		b.pass(time.Second)
		if n := b.standing(); n != 1 {
			b.Errorf("%d machines after the hold, want 1", n)
		}
	}, func(cfg *Config) {
		cfg.Held = func(string) (string, bool) { return "annotation", held.Load() }
	})
}
