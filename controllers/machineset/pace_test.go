package machineset

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
)

// turns has a machine change its phase.
func (b *bench) turns(name string, phase v1alpha1.MachinePhase) {
	b.Helper()
	b.patchMachine(name, fmt.Sprintf(`{"status":{"currentStatus":{"phase":%q}}}`, phase), "status")
}

// statusWrites returns how often the status of sets was written so far.
func (b *bench) statusWrites() int { return b.server.Count("patch machinesets/status") }

// Nodes that are configured reboot one after the other: the counts of their set are written at the
// slow pace, and are right in the end. One machine alone is reported at once.
func TestCountsAreWrittenAtTheSlowPaceWhileMachinesRecover(t *testing.T) {
	onBench(t, func(b *bench) {
		const replicas, reboot = 20, 3 * time.Second
		b.create(replicas)
		var names []string
		for _, m := range b.machines() {
			names = append(names, m.Name)
			b.turns(m.Name, v1alpha1.MachineRunning)
		}
		b.pass(time.Minute)
		b.turns(names[0], v1alpha1.MachineUnknown)
		b.pass(time.Second)
		if got := b.set().Status.ReadyReplicas; got != replicas-1 {
			t.Errorf("%d are ready a second after one is not, want %d", got, replicas-1)
		}
		b.turns(names[0], v1alpha1.MachineRunning)
		b.pass(time.Minute)
		before := b.statusWrites()
		for pair := range slices.Chunk(names, 2) { // the second begins before the first has ended
			b.turns(pair[0], v1alpha1.MachineUnknown)
			b.pass(reboot / 2)
			b.turns(pair[1], v1alpha1.MachineUnknown)
			b.pass(reboot / 2)
			b.turns(pair[0], v1alpha1.MachineRunning)
			b.pass(reboot / 2)
			b.turns(pair[1], v1alpha1.MachineRunning)
		}
		b.pass(2 * statusPace)
		took := replicas / 2 * 3 * reboot / 2
		if n, most := b.statusWrites()-before, 2*int(took/slowStatusPace)+2; n > most {
			t.Errorf("%d writes of the status in %s, want %d at most", n, took, most)
		}
		if got := b.set().Status.ReadyReplicas; got != replicas {
			t.Errorf("%d are ready in the end, want %d", got, replicas)
		}
	})
}
