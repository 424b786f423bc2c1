package assignment

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/worlds"
)

// fleet is a world in which each assignment is carried out at once.
type fleet struct {
	World
	config Config
}

func newFleet(slots int, replicas ...string) *fleet {
	f := &fleet{config: DefaultConfig(), World: World{Now: time.Hour, Slots: make([]Slot, slots)}}
	f.join(replicas...)
	return f
}

func (f *fleet) join(replicas ...string) {
	for _, name := range replicas {
		f.vanish(name)
		f.Replicas = append(f.Replicas, Replica{Name: name})
	}
}

// leave marks a replica as leaving; vanish removes it.
func (f *fleet) leave(name string) { f.replica(name).Leaving = true }

func (f *fleet) vanish(name string) {
	f.Replicas = slices.DeleteFunc(f.Replicas, func(r Replica) bool { return r.Name == name })
}

func (f *fleet) replica(name string) *Replica {
	return &f.Replicas[slices.IndexFunc(f.Replicas, func(r Replica) bool { return r.Name == name })]
}

// plan assigns once, and carries the moves out.
func (f *fleet) plan() Verdict {
	v := Assign(f.config, f.World)
	for _, m := range v.Moves {
		slot := &f.Slots[m.Slot]
		if slot.Home != m.Home {
			slot.Home, slot.HomeUntil = m.Home, f.Now+f.config.HomeFor
		}
		if m.Rebalances() {
			slot.Moved = f.Now
		}
		if m.PassOver() {
			slot.Passed = map[string]time.Duration{m.From: f.Now + f.config.PassOverFor}
		}
		slot.Assigned, slot.Holder, slot.UnownedSince = m.To, m.To, 0
	}
	return v
}

// tester is the common part of testing.T and rapid.T.
type tester interface {
	Helper()
	Fatalf(format string, args ...any)
}

// settle assigns until nothing moves, as time passes, and returns all moves.
func (f *fleet) settle(t tester) []Move {
	t.Helper()
	var all []Move
	for range 100 {
		moves := f.plan().Moves
		if len(moves) == 0 {
			return all
		}
		all = append(all, moves...)
		f.Now += f.config.Window
	}
	t.Fatalf("want no moves after 100 assignments")
	return nil
}

func (f *fleet) assigned() []string {
	all := make([]string, len(f.Slots))
	for i, s := range f.Slots {
		all[i] = s.Assigned
	}
	return all
}

// weigh gives the slots the weights of 0 to n MachineDeployments of log-normal size: median 20,
// sigma 1.2, at most 2,000 machines.
func (f *fleet) weigh(random *rand.Rand, deployments int) {
	spread, err := NewSpread(len(f.Slots), ByDeployment)
	if err != nil {
		panic(err)
	}
	for i := range deployments {
		size := min(2000, math.Round(20*math.Exp(1.2*random.NormFloat64())))
		f.Slots[spread.Of("default", fmt.Sprintf("worker-%d-%d", random.Uint32(), i))].Weight += int64(size)
	}
}

// busiest returns the largest share by weight, the mean, and the weight of the largest slot.
func (f *fleet) busiest() (largestShare, mean, largestSlot float64) {
	shares := map[string]float64{}
	total := 0.0
	for _, s := range f.Slots {
		shares[s.Assigned] += float64(s.Weight)
		total += float64(s.Weight)
		largestSlot = max(largestSlot, float64(s.Weight))
	}
	for _, share := range shares {
		largestShare = max(largestShare, share)
	}
	return largestShare, total / float64(len(f.Replicas)), largestSlot
}

func (f *fleet) counts() map[string]int {
	n := map[string]int{}
	for _, s := range f.Slots {
		n[s.Assigned]++
	}
	return n
}

func names(n int) []string {
	all := make([]string, n)
	for i := range all {
		all[i] = fmt.Sprintf("fleet-%d", i)
	}
	return all
}

// TestLoadOfRealFleets checks the bar: 1,000 MachineDeployments on 10 replicas and 256 slots, which
// were assigned when all were empty. The busiest carries at most 1.15 times the mean, or the
// largest slot.
func TestLoadOfRealFleets(t *testing.T) {
	worst, most := 0.0, 0
	for seed := range uint64(worlds.Some(100)) {
		f := newFleet(256, names(10)...)
		f.settle(t)
		f.weigh(rand.New(rand.NewPCG(seed, 0)), 1000)
		before, mean, _ := f.busiest()
		moves := f.settle(t)
		after, _, largest := f.busiest()
		t.Logf("seed %d: busiest/mean %.2f -> %.2f, floor %.2f, %d moves", seed, before/mean, after/mean, largest/mean, len(moves))
		if after > max(1.15*mean, largest) {
			t.Errorf("seed %d: the busiest carries %.2f times the mean; want at most 1.15, or %.2f", seed, after/mean, largest/mean)
		}
		worst, most = max(worst, after/mean), max(most, len(moves))
	}
	t.Logf("worst %.3f, most moves %d", worst, most)
}
