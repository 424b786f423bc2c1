package assignment

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/worlds"
)

// TestProperties checks that, in any world, every slot is assigned to a replica that stays, moves
// for joining or load stay within the limits, no slot is assigned without need to a replica that
// was passed over for it, the order of replicas has no effect, assigning again moves nothing again,
// and the moves end.
func TestProperties(t *testing.T) {
	worlds.Check(t, 1, func(t *rapid.T) {
		f := generate(t)
		before := slices.Clone(f.Slots)
		shuffled := f.World
		shuffled.Replicas = rapid.Permutation(f.Replicas).Draw(t, "shuffled")
		v := f.plan()
		if diff := cmp.Diff(v, Assign(f.config, World{Now: f.Now, Replicas: shuffled.Replicas, Slots: before})); diff != "" {
			t.Fatalf("another order of replicas: %s", diff)
		}

		staying := map[string]bool{}
		for _, r := range f.Replicas {
			staying[r.Name] = !r.Leaving
		}
		rebalanced, forLoad := 0, 0
		for _, m := range v.Moves {
			if m.From != before[m.Slot].Assigned || m.To == m.From || !staying[m.To] || m.Home == m.To {
				t.Fatalf("not a move that makes sense: %+v of %+v", m, before[m.Slot])
			}
			if before[m.Slot].Passed[m.To] > f.Now && (m.Why == NotAcquired || m.Why == Home || m.Rebalances()) {
				t.Fatalf("move to a replica that was passed over: %+v", m)
			}
			if m.Rebalances() {
				rebalanced++
			}
			if m.Why == Load {
				forLoad++
			}
		}
		if float64(rebalanced) > f.config.JoinShare*float64(len(f.Slots)) || forLoad > max(1, len(f.Slots)/16) {
			t.Fatalf("%d moves for joining or load, %d of them for load, of %d slots", rebalanced, forLoad, len(f.Slots))
		}
		for i, s := range f.Slots {
			if !staying[s.Assigned] && slices.ContainsFunc(f.Replicas, func(r Replica) bool { return !r.Leaving }) {
				t.Fatalf("slot %d is assigned to no replica that stays: %+v", i, s)
			}
		}
		for _, m := range f.plan().Moves {
			if !m.Rebalances() {
				t.Fatalf("moved again: %+v", m)
			}
		}
		f.settle(t) // the moves end
	})
}

// generate draws a world in any state, valid or not.
func generate(t *rapid.T) *fleet {
	replica := rapid.SampledFrom(names(7))
	f := newFleet(rapid.SampledFrom([]int{1, 2, 7, 32}).Draw(t, "slots"))
	for _, name := range rapid.SliceOfNDistinct(replica, 0, 6, rapid.ID).Draw(t, "replicas") {
		f.Replicas = append(f.Replicas, Replica{
			Name: name, Leaving: rapid.IntRange(0, 5).Draw(t, "leaving") == 0,
			Capacity: rapid.SampledFrom([]float64{0, 1, 1, 2, 0.5}).Draw(t, "capacity"),
		})
	}
	around := func(what string) time.Duration {
		return f.Now + time.Duration(rapid.IntRange(-400, 100).Draw(t, what))*time.Second
	}
	anyone := rapid.OneOf(rapid.Just(""), replica)
	for i := range f.Slots {
		s := Slot{Assigned: anyone.Draw(t, "assigned"), Weight: rapid.SampledFrom([]int64{0, 0, 1, 5, 20, 100}).Draw(t, "weight")}
		s.Holder = rapid.OneOf(rapid.Just(s.Assigned), anyone).Draw(t, "holder")
		if s.Holder == "" {
			s.UnownedSince = min(f.Now, around("unowned"))
		}
		if rapid.Bool().Draw(t, "has home") {
			s.Home, s.HomeUntil = replica.Draw(t, "home"), around("home until")
		}
		if rapid.Bool().Draw(t, "has moved") {
			s.Moved = min(f.Now, around("moved"))
		}
		if rapid.IntRange(0, 3).Draw(t, "passed over") == 0 {
			s.Passed = map[string]time.Duration{replica.Draw(t, "passed"): around("passed until")}
		}
		f.Slots[i] = s
	}
	return f
}

// settled returns a fleet of some size with some weights, at rest.
func settled(t *rapid.T, slots int) *fleet {
	f := newFleet(slots, names(rapid.IntRange(1, 8).Draw(t, "replicas"))...)
	f.settle(t)
	seed := rapid.Uint64().Draw(t, "seed")
	f.weigh(rand.New(rand.NewPCG(seed, 1)), rapid.SampledFrom([]int{0, 10, 100, 1000}).Draw(t, "deployments"))
	for len(f.settle(t)) > 0 {
		f.Now += time.Hour // no slot rests any more
	}
	return f
}

// TestJoin checks that a newcomer gets about its share, and no other replica gets anything.
func TestJoin(t *testing.T) {
	worlds.Check(t, 1, func(t *rapid.T) {
		f := settled(t, 256)
		n := len(f.Replicas)
		f.join("newcomer")
		moves := f.plan().Moves
		for _, m := range moves {
			if m.To != "newcomer" || m.Why != Joined {
				t.Fatalf("a newcomer joins %d others: want only moves to it for joining, got %+v", n, m)
			}
		}
		share := float64(len(f.Slots)) / float64(n+1)
		if got := float64(len(moves)); got > 1.2*share {
			t.Fatalf("the newcomer joins %d others and gets %v slots; want at most 1.2 × %.1f", n, got, share)
		}
		if again := f.plan().Moves; len(again) > 0 {
			t.Fatalf("moved again: %+v", again)
		}
	})
}

// TestJoinEven checks that of slots of equal weight a newcomer gets exactly its share.
func TestJoinEven(t *testing.T) {
	for n := 1; n <= 25; n++ {
		f := newFleet(256, names(n)...)
		f.settle(t)
		f.Now += time.Hour
		f.join("newcomer")
		moves := f.settle(t)
		if share := 256 / (n + 1); len(moves) < share*9/10 || len(moves) > share+1 {
			t.Errorf("the newcomer joins %d others and gets %d slots; want about %d", n, len(moves), share)
		}
	}
}

// TestManyJoin checks that all newcomers have their share in the end, also if more join at once
// than the limit of a minute allows.
func TestManyJoin(t *testing.T) {
	f := newFleet(256, "fleet-0")
	f.settle(t)
	f.join(names(5)...)
	f.settle(t)
	for name, n := range f.counts() {
		if n < 45 || n > 57 {
			t.Errorf("%s has %d of 256 slots; want about 51", name, n)
		}
	}
}

// TestSpread checks that empty slots are spread as evenly as possible, also over more replicas than
// slots.
func TestSpread(t *testing.T) {
	const slots = 64
	for _, n := range []int{1, 2, 3, 10, 50, 64, 80} {
		f := newFleet(slots, names(n)...)
		f.settle(t)
		for name, got := range f.counts() {
			if limit := slots*105/100/n + 1; got > limit {
				t.Errorf("%d replicas: %s has %d of %d slots; want at most %d", n, name, got, slots, limit)
			}
		}
	}
}

// TestLeave checks that the slots of a leaving replica, and only these, are assigned to the others,
// which are even afterwards.
func TestLeave(t *testing.T) {
	worlds.Check(t, 1, func(t *rapid.T) {
		f := settled(t, 256)
		if len(f.Replicas) == 1 {
			t.Skip("no replica is left")
		}
		had := f.counts()["fleet-0"]
		f.leave("fleet-0")
		moves := f.plan().Moves
		for _, m := range moves {
			if m.Why == Leaving && (m.From != "fleet-0" || m.Home != "fleet-0") {
				t.Fatalf("fleet-0 leaves: want it as the origin and the home, got %+v", m)
			}
		}
		leaving := slices.DeleteFunc(slices.Clone(moves), func(m Move) bool { return m.Why != Leaving })
		if len(leaving) != had {
			t.Fatalf("fleet-0 had %d slots, and %d move", had, len(leaving))
		}
		if again := f.plan().Moves; len(again) > 0 {
			t.Fatalf("moved again: %+v", again)
		}
	})
}

// TestRollingRestart checks that all slots are where they were after each replica has left and
// returned, with and without time in between.
func TestRollingRestart(t *testing.T) {
	worlds.Check(t, 1, func(t *rapid.T) {
		f := settled(t, 256)
		want := f.assigned()
		pause := rapid.SampledFrom([]time.Duration{0, time.Second, 30 * time.Second, 2 * time.Minute}).Draw(t, "pause")
		for _, name := range names(len(f.Replicas)) {
			f.leave(name)
			f.plan()
			if rapid.Bool().Draw(t, "seen gone") {
				f.vanish(name)
				f.plan()
			}
			f.Now += pause
			f.plan()
			f.join(name)
			f.plan()
			f.Now += pause
			f.plan()
		}
		if diff := cmp.Diff(want, f.assigned()); diff != "" {
			t.Fatalf("slots are not where they were (-before +after):\n%s", diff)
		}
	})
}

// TestWeightsChange checks that the load stays within the bound or at its floor while
// MachineDeployments are created, grow and are deleted.
func TestWeightsChange(t *testing.T) {
	for seed := range uint64(worlds.Some(20)) {
		random := rand.New(rand.NewPCG(seed, 2))
		f := newFleet(256, names(5)...)
		f.settle(t)
		for round := range 20 {
			f.weigh(random, 50)
			f.Slots[random.IntN(256)].Weight = 0
			f.settle(t)
			f.Now += time.Hour
			f.settle(t)
			if got, mean, largest := f.busiest(); round > 5 && got > max(1.15*mean, largest) {
				t.Errorf("seed %d, round %d: the busiest carries %.2f times the mean; want at most 1.15, or %.2f", seed, round, got/mean, largest/mean)
			}
		}
	}
}

func ExampleAssign() {
	w := World{Now: time.Hour, Replicas: []Replica{{Name: "fleet-0"}, {Name: "fleet-1", Leaving: true}}, Slots: []Slot{
		{Holder: "fleet-0", Assigned: "fleet-0", Weight: 20},
		{Holder: "fleet-1", Assigned: "fleet-1", Weight: 15},
	}}
	for _, m := range Assign(DefaultConfig(), w).Moves {
		fmt.Printf("slot %d: %s -> %s (%s), home is %s\n", m.Slot, m.From, m.To, m.Why, m.Home)
	}
	// Output: slot 1: fleet-1 -> fleet-0 (Leaving), home is fleet-1
}
