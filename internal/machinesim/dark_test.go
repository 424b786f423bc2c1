package machinesim

import (
	"flag"
	"maps"
	"slices"
	"testing"
	"time"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/disruption"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/worlds"
)

var (
	seeds = flag.Int("seeds", 40, "how many worlds to try")
	first = flag.Uint64("first", 1, "seed of the first world")
)

func equalObjects(a, b *v1alpha1.Machine) bool { return apiequality.Semantic.DeepEqual(a, b) }

// names returns the machines that exist, by UID.
func (w *world) alive() map[types.UID]string {
	alive := map[types.UID]string{}
	for _, m := range w.machines.now() {
		if m.DeletionTimestamp == nil {
			alive[m.UID] = m.Name
		}
	}
	return alive
}

// darken turns Nodes of all machines not Ready, or Ready again, at moments within the span.
func (w *world) darken(dark bool, within time.Duration) {
	names := slices.Sorted(maps.Values(w.alive()))
	w.dice.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
	for i, name := range names {
		if i > 0 {
			w.run(within / time.Duration(len(names)))
		}
		w.sick[name] = dark
	}
}

// TestZoneOutage: a zone of 20 machines in 4 MachineDeployments is not Ready for 30 min and
// recovers, and no machine is replaced. Then one machine dies, and is replaced.
func TestZoneOutage(t *testing.T) {
	for name, during := range map[string]func(*world){
		"no other fault": func(w *world) { w.run(30 * time.Minute) },
		"a replica dies, and another takes over": func(w *world) {
			w.run(9 * time.Minute)
			w.owners[0].dead = true
			w.run(15 * time.Second)
			for _, slot := range slices.Clone(w.owners[0].slots) {
				w.owners[0].drop(slot)
				w.owners[1].acquire(slot)
			}
			w.run(20*time.Minute + 45*time.Second)
		},
		"all replicas restart": func(w *world) {
			w.run(15 * time.Minute)
			w.restart()
			w.run(15 * time.Minute)
		},
		"all replicas restart when half of the zone has recovered": func(w *world) {
			w.run(20 * time.Minute)
			back := 0
			for _, name := range slices.Sorted(maps.Values(w.alive())) {
				if back++; back <= 12 {
					delete(w.sick, name)
				}
			}
			w.run(time.Minute)
			w.restart()
			w.run(9 * time.Minute)
		},
		"a slot moves every few minutes": func(w *world) {
			for i := range 15 {
				w.run(2 * time.Minute)
				w.move(i % w.slots)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 1, 4, 5, 2)
			before := w.alive()
			w.darken(true, time.Minute)
			during(w)
			if len(w.breakersSeen) != 4 {
				t.Errorf("the circuit breaker was open for %v, want all 4", slices.Sorted(maps.Keys(w.breakersSeen)))
			}
			w.darken(false, 3*time.Minute)
			w.run(10 * time.Minute)
			if after := w.alive(); !maps.Equal(before, after) || w.failedMachines > 0 {
				t.Errorf("%d machines failed; there were %v and are %v", w.failedMachines, before, after)
			}
			for _, d := range w.deployments.now() {
				if len(d.Status.Conditions) > 0 {
					t.Errorf("the circuit breaker of %s is still open", d.Name)
				}
			}
			w.oneDies()
		})
	}
}

// oneDies makes one machine die, which has to be replaced.
func (w *world) oneDies() {
	before := w.alive()
	name := slices.Sorted(maps.Values(before))[7]
	w.sick[name] = true
	w.run(9 * time.Minute)
	if !maps.Equal(before, w.alive()) {
		w.Error("it was replaced before the health timeout")
	}
	w.run(5 * time.Minute)
	after := w.alive()
	kept := maps.Clone(after)
	maps.DeleteFunc(kept, func(uid types.UID, _ string) bool { return before[uid] == "" })
	if slices.Contains(slices.Collect(maps.Values(after)), name) || len(kept) != len(before)-1 || w.running() != len(before) {
		w.Errorf("machine %s died; there were %v and are %v, of which %d run", name, before, after, w.running())
	}
}

// restart restarts all processes with nothing but their reports.
func (w *world) restart() {
	for i, p := range w.owners {
		anew := newProcess(w, p.name)
		for _, slot := range p.slots {
			anew.acquire(slot)
		}
		w.owners[i] = anew
	}
}

// move hands over a slot to another process.
func (w *world) move(slot int) {
	for i, p := range w.owners {
		if slices.Contains(p.slots, slot) {
			p.drop(slot)
			w.owners[(i+1)%len(w.owners)].acquire(slot)
			return
		}
	}
}

// TestWithoutCircuitBreakers shows that the circuit breaker keeps the machines of a zone with an
// outage: without it they are replaced one by one, though never two of a deployment at a time.
func TestWithoutCircuitBreakers(t *testing.T) {
	w := newWorld(t, 1, 4, 5, 2)
	w.limits.Thresholds.Percent = 100
	w.fallible = true
	w.darken(true, time.Minute)
	w.run(30 * time.Minute)
	if w.failedMachines < 4 || len(w.breakersSeen) > 0 {
		t.Errorf("%d machines failed and %d deployments had an open circuit breaker; want at least 4 and none",
			w.failedMachines, len(w.breakersSeen))
	}
}

// TestDestroyedZone: the machines of a zone never recover. None is replaced for 2 h, and then one
// of each deployment after the other, until all are.
func TestDestroyedZone(t *testing.T) {
	w := newWorld(t, 1, 4, 5, 2)
	w.fallible = true
	before := w.alive()
	w.darken(true, time.Minute)
	w.run(w.limits.HealthTimeout + w.limits.Thresholds.TryAfter - 2*time.Minute)
	if !maps.Equal(before, w.alive()) {
		t.Error("machines were replaced while the circuit breaker was open for less than 2 h")
	}
	w.run(2 * time.Hour)
	for uid := range w.alive() {
		if before[uid] != "" {
			t.Errorf("machine %s was not replaced", before[uid])
		}
	}
	if w.running() != len(before) {
		t.Errorf("%d of %d machines run", w.running(), len(before))
	}
}

// TestNeverTooManyReplacements draws worlds in which Nodes fail and recover, caches are late,
// processes die, slots move and writes take effect long after. Of no deployment are ever more
// machines being replaced than its disruption budget allows, and in the end all machines run.
func TestNeverTooManyReplacements(t *testing.T) {
	failedMachines, many := 0, worlds.Some(*seeds)
	for seed := *first; seed < *first+uint64(many); seed++ {
		w := newWorld(t, seed, 2, 4, 2)
		w.fallible, w.wild = true, true
		w.limits.Budget = intstr.FromInt32(1 + w.dice.Int32N(2))
		w.limits.Thresholds = disruption.Thresholds{
			NotReady: 2 + w.dice.IntN(7), Percent: 50 + w.dice.IntN(51), ClosePercent: 30, CloseAfter: time.Minute,
			TryAfter: time.Duration(w.dice.IntN(30)) * time.Minute,
		}
		w.muddle(600)
		w.settle(seed)
		failedMachines += w.failedMachines
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
	t.Logf("seeds %d to %d: %d machines failed", *first, *first+uint64(many)-1, failedMachines)
	if failedMachines < many {
		t.Errorf("%d machines failed in %d worlds: too few for this test", failedMachines, many)
	}
}

// muddle does random actions.
func (w *world) muddle(steps int) {
	for range steps {
		w.tick(time.Duration(w.dice.IntN(60)) * time.Second)
		switch w.dice.IntN(12) {
		case 0:
			names := slices.Sorted(maps.Values(w.alive()))
			name := names[w.dice.IntN(len(names))]
			w.sick[name] = !w.sick[name]
			w.note("Node %s: sick %v", name, w.sick[name])
		case 1:
			if w.dice.IntN(4) == 0 {
				w.move(w.dice.IntN(w.slots))
			}
		case 2:
			if len(w.late) > 0 {
				i := w.dice.IntN(len(w.late))
				send := w.late[i]
				w.late = slices.Delete(w.late, i, i+1)
				w.note("a late write takes effect")
				send()
			}
		case 3:
			if w.dice.IntN(10) == 0 {
				w.note("all restart")
				w.restart()
			}
		default:
			w.owners[w.dice.IntN(len(w.owners))].all()
		}
		w.check()
	}
}

// settle ends all faults but those of dead Nodes, and checks the result.
func (w *world) settle(seed uint64) {
	w.wild, w.late = false, nil
	for _, p := range w.owners {
		p.ahead = 0
	}
	dead := 0
	for _, name := range slices.Sorted(maps.Values(w.alive())) {
		if w.sick[name] && dead >= 2 {
			delete(w.sick, name)
		} else if w.sick[name] {
			dead++
		}
	}
	w.runIn(90*time.Minute, time.Minute)
	if got := w.running(); got != 8 {
		w.Errorf("seed %d: %d machines run in the end, want 8", seed, got)
	}
	for _, d := range w.deployments.now() {
		if disruptions, _ := disruption.ReadDisruptions(d); len(disruptions) > 0 || len(d.Status.Conditions) > 0 {
			w.Errorf("seed %d: %s still has disruptions %v and conditions %v", seed, d.Name, disruptions, d.Status.Conditions)
		}
	}
	if len(w.vms) != 8 {
		w.Errorf("seed %d: %d VMs exist, want 8", seed, len(w.vms))
	}
}
