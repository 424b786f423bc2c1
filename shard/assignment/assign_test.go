package assignment

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// TestAssign uses small worlds at one o'clock, with the arithmetic next to each. A machine costs
// ten, a slot one.
func TestAssign(t *testing.T) {
	const now = time.Hour
	a, b, c := Replica{Name: "a"}, Replica{Name: "b"}, Replica{Name: "c"}
	leaving := func(r Replica) Replica { r.Leaving = true; return r }
	held := func(by string, weight int64) Slot { return Slot{Holder: by, Assigned: by, Weight: weight} }
	with := func(s Slot, change func(*Slot)) Slot { change(&s); return s }
	moved := func(s *Slot) { s.Moved = now - 2*time.Minute } // it rests
	justMoved := func(s *Slot) { s.Moved = now - 30*time.Second }
	times := func(n int, s Slot) []Slot { return slices.Repeat([]Slot{s}, n) }
	tests := map[string]struct {
		replicas []Replica
		slots    []Slot
		want     []Move
	}{
		"no replicas": {nil, []Slot{{}}, nil},
		"all leave: the slots stay, since no replica can take them": {[]Replica{leaving(a)}, []Slot{held("a", 1)}, nil},
		"even: nothing moves": {[]Replica{a, b}, []Slot{held("a", 5), held("b", 5)}, nil},
		"a dead replica's slot is assigned to the other": {
			[]Replica{b},
			[]Slot{held("a", 5), held("b", 5)},
			[]Move{{Slot: 0, From: "a", To: "b", Why: Gone}},
		},
		// a has 51 and b 31. Slot 2 is the heavier one: b is the less busy with it, 82 < 102. Then slot
		// 3: a 72, b 103.
		"the heaviest first, each to the least busy": {
			[]Replica{a, b},
			[]Slot{held("a", 5), held("b", 3), {Weight: 5}, {Weight: 2}},
			[]Move{{Slot: 2, To: "b", Why: New}, {Slot: 3, To: "a", Why: New}},
		},
		"the slot of a leaving replica gets it as its home": {
			[]Replica{leaving(a), b},
			[]Slot{held("a", 5), held("b", 5)},
			[]Move{{Slot: 0, From: "a", To: "b", Why: Leaving, Home: "a"}},
		},
		"a slot that moves again keeps its first home": {
			[]Replica{leaving(b), c},
			[]Slot{with(held("b", 5), func(s *Slot) { s.Home, s.HomeUntil = "a", now+1 })},
			[]Move{{Slot: 0, From: "b", To: "c", Why: Leaving, Home: "a"}},
		},
		"a slot returns to its home": {
			[]Replica{a, b},
			[]Slot{with(held("b", 5), func(s *Slot) { s.Home, s.HomeUntil = "a", now+1 }), held("b", 5)},
			[]Move{{Slot: 0, From: "b", To: "a", Why: Home}},
		},
		"too late to return to its home": {
			[]Replica{a, b}, []Slot{held("a", 5), with(held("b", 5), func(s *Slot) { s.Home, s.HomeUntil = "a", now })}, nil,
		},
		"a home that leaves does not count": {
			[]Replica{leaving(a), b}, []Slot{with(held("b", 5), func(s *Slot) { s.Home, s.HomeUntil = "a", now+1 })}, nil,
		},
		"assigned to a dead replica, and held by a live one all the time: it stays": {
			[]Replica{a, b},
			[]Slot{{Holder: "b", Assigned: "dead", Weight: 5}, held("b", 1), held("a", 6)},
			[]Move{{Slot: 0, From: "dead", To: "b", Why: Gone}},
		},
		"it stays also when others are less busy": {
			[]Replica{a, b, c},
			[]Slot{{Holder: "b", Assigned: "dead", Weight: 5}, with(held("b", 9), moved), held("a", 1), held("c", 1)},
			[]Move{{Slot: 0, From: "dead", To: "b", Why: Gone}},
		},
		"unless its holder did not take it just now": {
			[]Replica{a, b, c},
			[]Slot{
				{Holder: "b", Assigned: "dead", Weight: 5, Passed: map[string]time.Duration{"b": now + 1}},
				with(held("b", 9), moved), with(held("a", 1), moved), held("c", 1),
			},
			[]Move{{Slot: 0, From: "dead", To: "a", Why: Gone}},
		},
		"not taken for 5 s": {
			[]Replica{a, b},
			[]Slot{{Assigned: "a", UnownedSince: now - 5*time.Second}, held("a", 5), held("b", 5)},
			[]Move{{Slot: 0, From: "a", To: "b", Why: NotAcquired}},
		},
		"not taken for a little less": {
			[]Replica{a, b}, []Slot{{Assigned: "a", UnownedSince: now - 5*time.Second + 1, Weight: 5}, held("b", 5)}, nil,
		},
		"not taken, and the other did not take it either": {
			[]Replica{a, b},
			[]Slot{{Assigned: "a", UnownedSince: now - time.Minute, Passed: map[string]time.Duration{"b": now + 1}, Weight: 5}, held("b", 5)},
			nil,
		},
		"passed over, but there is no other replica": {
			[]Replica{b},
			[]Slot{{Assigned: "a", Passed: map[string]time.Duration{"b": now + 1}}},
			[]Move{{Slot: 0, From: "a", To: "b", Why: Gone}},
		},
		"its home did not take it just now": {
			[]Replica{a, b},
			[]Slot{held("a", 5), with(held("b", 5), func(s *Slot) {
				s.Home, s.HomeUntil, s.Passed = "a", now+1, map[string]time.Duration{"a": now + 1}
			})},
			nil,
		},
		// a has 8 × 11 = 88 of 88, the mean is 44: b gets 4 slots, those that the table names for it.
		"a newcomer gets its share": {
			[]Replica{a, b},
			[]Slot{held("a", 1), held("a", 1), held("a", 1), held("a", 1), held("a", 1), held("a", 1), held("a", 1), held("a", 1)},
			[]Move{
				{Slot: 0, From: "a", To: "b", Why: Joined},
				{Slot: 3, From: "a", To: "b", Why: Joined},
				{Slot: 4, From: "a", To: "b", Why: Joined},
				{Slot: 7, From: "a", To: "b", Why: Joined},
			},
		},
		// 6 × 11 = 66 for capacities 1 and 2: 22 and 44. Half of the slots may move in a minute, which is
		// 3.
		"a newcomer with twice the capacity, up to the limit": {
			[]Replica{a, {Name: "b", Capacity: 2}},
			[]Slot{held("a", 1), held("a", 1), held("a", 1), held("a", 1), held("a", 1), held("a", 1)},
			[]Move{
				{Slot: 0, From: "a", To: "b", Why: Joined},
				{Slot: 3, From: "a", To: "b", Why: Joined},
				{Slot: 4, From: "a", To: "b", Why: Joined},
			},
		},
		// The limit is 4 of 8 slots, and 2 have just moved. The table names b for the slots 3, 4 and 7.
		"slots that have just moved leave less for a newcomer": {
			[]Replica{a, b},
			slices.Concat([]Slot{held("a", 1), with(held("a", 1), justMoved), with(held("a", 1), justMoved)}, times(5, held("a", 1))),
			[]Move{{Slot: 3, From: "a", To: "b", Why: Joined}, {Slot: 4, From: "a", To: "b", Why: Joined}},
		},
		// b has 1 of 11 slots, and with 91 more than half of the mean of 100.5. a has 110, which is 1.095
		// of it.
		"a replica with few heavy slots is not a newcomer": {[]Replica{a, b}, append(times(10, held("a", 1)), held("b", 9)), nil},
		// a has 2 × 11 + 11 × 1 = 33, b 11, the mean is 22.
		"a replica with half of the mean load is not a newcomer": {
			[]Replica{a, b},
			slices.Concat(times(2, with(held("a", 1), moved)), times(11, with(held("a", 0), moved)), []Slot{held("b", 1)}),
			nil,
		},
		"a replica with half of its share of the slots is not a newcomer": {
			[]Replica{a, b}, append(times(3, with(held("a", 1), moved)), held("b", 0)), nil,
		},
		// a has 101 + 61 + 81 = 243, b 192 / 3 = 64, the mean is 87. The table names b for slot 3, with
		// which b would have 84.3.
		"when a newcomer joins, others get nothing": {
			[]Replica{a, {Name: "b", Capacity: 3}, c},
			[]Slot{held("b", 9), held("b", 10), held("a", 10), held("a", 6), held("a", 8)},
			[]Move{{Slot: 4, From: "a", To: "c", Why: Joined}},
		},
		// A share is 2/3 of a slot, and 1 slot is more than 1.2 times that.
		"with fewer slots than replicas slots move for load only": {
			[]Replica{a, b, c}, []Slot{held("b", 1), held("b", 9)}, []Move{{Slot: 0, From: "b", To: "c", Why: Load}},
		},
		// a has 201 + 201 + 21 = 423, the mean is 141. The table names c for slot 0.
		"a newcomer does not get a slot that is more than its share": {
			[]Replica{a, b, c},
			[]Slot{held("a", 20), held("a", 20), held("a", 2)},
			[]Move{{Slot: 2, From: "a", To: "b", Why: Joined}},
		},
		// Each slot is a whole share, by load and by number. The table names c for slot 0; without the
		// table it is b's.
		"a newcomer gets from the table up to its whole share": {
			[]Replica{a, b, c}, times(3, held("a", 20)), []Move{{Slot: 0, From: "a", To: "c", Why: Joined}},
		},
		// All slots weigh the same, d has two. The table names b for slot 3; without the table it is slot
		// 0.
		"a replica hands over what the table names down to the mean": {
			[]Replica{a, b, c, {Name: "d"}},
			[]Slot{held("d", 2), held("c", 2), held("a", 2), held("d", 2)},
			[]Move{{Slot: 3, From: "d", To: "b", Why: Joined}},
		},
		// b gets slot 3, which the table names: 61 of a mean of 62, and one slot less than its share.
		"a newcomer that has its share of the load gets no more": {
			[]Replica{a, b},
			[]Slot{held("a", 0), held("a", 6), held("a", 0), held("a", 6)},
			[]Move{{Slot: 3, From: "a", To: "b", Why: Joined}},
		},
		// b gets slot 3, which the table names: 171 of a mean of 180. One of 11 more would be 182, at
		// most 1.05 of the mean.
		"0.95 of the mean is the share of the load": {
			[]Replica{a, b},
			slices.Concat(times(3, held("a", 1)), []Slot{held("a", 17), held("a", 10)}, times(5, held("a", 1))),
			[]Move{{Slot: 3, From: "a", To: "b", Why: Joined}},
		},
		// A share is 2.5 slots and 32.5 of load. b has 1, and gets slot 3, which the table names: 22.
		// Slot 0 is then nearest to the 10.5 that are missing, and makes it 3 slots and 33.
		"a newcomer gets up to 1.2 times its share of the slots": {
			[]Replica{a, b},
			[]Slot{held("a", 1), held("a", 3), held("a", 0), held("a", 2), held("b", 0)},
			[]Move{{Slot: 0, From: "a", To: "b", Why: Joined}, {Slot: 3, From: "a", To: "b", Why: Joined}},
		},
		// A share is 5/3 slots and 198.3 of load, so 119 a slot: 91 is nearest. Then 107 are missing, and
		// only the 11 fit.
		"a newcomer gets the slots that are nearest to what it lacks for each": {
			[]Replica{a, b, c},
			[]Slot{held("a", 20), held("a", 1), held("a", 9), held("c", 9), held("a", 20)},
			[]Move{{Slot: 1, From: "a", To: "b", Why: Joined}, {Slot: 2, From: "a", To: "b", Why: Joined}},
		},
		// A share is 4.5 slots and 354.5 of load. With the slots 3, 4 and 7, which the table names, b has
		// 4 slots and 314. 40.5 are missing, of half a slot, which counts as one: 41 is nearest.
		"a newcomer that lacks less than a slot gets the one that is nearest to what it lacks": {
			[]Replica{a, b},
			[]Slot{
				held("a", 10), held("a", 10), held("a", 5), held("a", 5), held("a", 9), held("a", 10), held("a", 4), held("a", 10), held("b", 7),
			},
			[]Move{
				{Slot: 3, From: "a", To: "b", Why: Joined},
				{Slot: 4, From: "a", To: "b", Why: Joined},
				{Slot: 6, From: "a", To: "b", Why: Joined},
				{Slot: 7, From: "a", To: "b", Why: Joined},
			},
		},
		// a 143, b 101, mean 122. Of a's slots the one of 2 leaves 122 and 122, the one of 1 132 and 112.
		"uneven: the slot that evens out most is not the lightest": {
			[]Replica{a, b},
			[]Slot{held("a", 1), held("a", 2), held("a", 11), held("b", 10)},
			[]Move{{Slot: 1, From: "a", To: "b", Why: Load}},
		},
		// a 88, b 33, mean 60.5. A sixteenth of 11 slots is less than one, which is the least that may
		// move.
		"uneven: up to the limit": {
			[]Replica{a, b}, append(times(8, held("a", 1)), times(3, held("b", 1))...), []Move{{Slot: 0, From: "a", To: "b", Why: Load}},
		},
		// a 88, b 31 + 41 = 72, mean 80.
		"1.1 of the mean is not uneven": {[]Replica{a, b}, append(times(8, held("a", 1)), held("b", 3), held("b", 4)), nil},
		// a 16 × 21 = 336, b 24 × 11 = 264, mean 300. Two may move; without one a has 315.
		"uneven: a hands slots over until it has 1.05 of the mean": {
			[]Replica{a, b}, append(times(16, held("a", 2)), times(24, held("b", 1))...), []Move{{Slot: 0, From: "a", To: "b", Why: Load}},
		},
		// a 182, b 102, mean 142. Of a's slots the one of 3 leaves 151 and 133; the one of 5 would leave
		// 131 and 153.
		"uneven: the slot that evens out most": {
			[]Replica{a, b},
			[]Slot{held("a", 3), held("a", 5), held("a", 10), held("b", 10)},
			[]Move{{Slot: 0, From: "a", To: "b", Why: Load}},
		},
		"uneven, but it was moved four minutes ago": {
			[]Replica{a, b},
			[]Slot{with(held("a", 3), func(s *Slot) { s.Moved = now - 4*time.Minute }), held("a", 10), held("b", 10)},
			nil,
		},
		// a 151, b 131, mean 141: 151 is 1.07 of it.
		"a little uneven: nothing moves":               {[]Replica{a, b}, []Slot{held("a", 3), held("a", 11), held("b", 13)}, nil},
		"one slot has all the work, and does not move": {[]Replica{a, b}, []Slot{held("a", 100), held("b", 0)}, nil},
		"an empty slot does not move for the sake of load": {
			[]Replica{a, b}, []Slot{held("a", 100), held("a", 0), held("b", 0), held("b", 1)}, nil,
		},
		"while a replica is awaited only its slots move": {
			[]Replica{a, b}, // c is absent
			[]Slot{held("a", 4), held("a", 10), with(held("a", 4), func(s *Slot) { s.Home, s.HomeUntil = "c", now+1 }), held("b", 10)},
			[]Move{{Slot: 2, From: "a", To: "b", Why: Load, Home: "c"}},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			c := DefaultConfig()
			c.JoinShare = 0.5 // some of the worlds reach it
			got := Assign(c, World{Now: now, Replicas: test.replicas, Slots: test.slots})
			if diff := cmp.Diff(test.want, got.Moves); diff != "" {
				t.Errorf("moves (-want +got):\n%s", diff)
			}
		})
	}
}

// TestTheTableChooses checks that the table decides about a slot that makes neither replica too
// busy.
func TestTheTableChooses(t *testing.T) {
	for _, test := range []struct{ a, b []int64 }{
		{[]int64{13, 13, 14}, []int64{10, 10, 10, 10}}, // a carries 403, b 404
		{[]int64{3, 0, 0, 0, 0, 0, 0, 0}, []int64{4}},  // a 38, b 41: with the slot b has 42, which is 1.05 of the mean
	} {
		slots := len(test.a) + len(test.b) + 1
		table := Table(slots, []string{"a", "b"})
		for number := range slots {
			f := newFleet(0, "a", "b")
			for _, weight := range test.a {
				f.Slots = append(f.Slots, Slot{Assigned: "a", Weight: weight})
			}
			for _, weight := range test.b {
				f.Slots = append(f.Slots, Slot{Assigned: "b", Weight: weight})
			}
			f.Slots = slices.Insert(f.Slots, number, Slot{})
			want := []Move{{Slot: number, To: table[number], Why: New}}
			if diff := cmp.Diff(want, f.plan().Moves); diff != "" {
				t.Errorf("slot %d (-want +got):\n%s", number, diff)
			}
		}
	}
}

// TestNewcomersGetLoadThatHasJustMoved has three replicas join while all slots with machines have
// just moved, as they do while machines are created: they get machines when these slots may move
// again, and their share of all slots.
func TestNewcomersGetLoadThatHasJustMoved(t *testing.T) {
	f := newFleet(256, "a", "b", "c")
	f.settle(t)
	shares := func() (slots map[string]int, weights map[string]int64) {
		slots, weights = map[string]int{}, map[string]int64{}
		for _, s := range f.Slots {
			slots[s.Assigned]++
			weights[s.Assigned] += s.Weight
		}
		return slots, weights
	}
	for _, name := range []string{"a", "b", "c"} {
		for range 2 {
			i := slices.IndexFunc(f.Slots, func(s Slot) bool { return s.Assigned == name && s.Weight == 0 })
			f.Slots[i].Weight, f.Slots[i].Moved = 10, f.Now
		}
	}
	f.Now += f.config.Window / 2
	f.join("d", "e", "f")
	f.plan()
	if slots, weights := shares(); weights["d"]+weights["e"]+weights["f"] > 0 || slots["d"] == 0 {
		t.Errorf("at once: %v slots, weights %v, want slots without machines for the newcomers", slots, weights)
	}
	f.Now += f.config.Window / 2
	f.plan()
	slots, weights := shares()
	for _, name := range []string{"d", "e", "f"} {
		if weights[name] != 10 || slots[name] < 40 {
			t.Errorf("after the window: %v slots, weights %v, want 10 and 40 of the 256 slots at least for %s", slots, weights, name)
		}
	}
	if moves := f.settle(t); len(moves) > 0 {
		t.Errorf("%d slots move later, want none", len(moves))
	}
}

// TestNewcomersDoNotWaitForNothing: slots that have just moved, but have no machines or too many,
// leave a newcomer its share of the slots at once.
func TestNewcomersDoNotWaitForNothing(t *testing.T) {
	for _, weight := range []int64{0, 1000} {
		f := newFleet(64, "a")
		f.settle(t)
		f.Slots[0].Weight, f.Slots[0].Moved = weight, f.Now
		f.join("b")
		f.plan()
		got := 0
		for _, s := range f.Slots {
			if s.Assigned == "b" {
				got++
			}
		}
		if got < 24 {
			t.Errorf("a slot with %d machines has moved: the newcomer gets %d of 64 slots, want 24 at least", weight, got)
		}
	}
}

// TestNotAcquiredSlotMoves moves a slot to b, which rests, from a, which holds all the other slots
// or none. If a holds none, it is less busy than b, and the table names it for some of the slots:
// it must not be assigned again what it does not take.
func TestNotAcquiredSlotMoves(t *testing.T) {
	for _, others := range []string{"a", "b"} {
		for number := range 8 {
			f := newFleet(8, "a", "b")
			f.replica("b").Limits = map[string]Limit{"": Rest}
			for i := range f.Slots {
				f.Slots[i] = Slot{Assigned: others, Holder: others}
			}
			f.Slots[number] = Slot{Assigned: "a", UnownedSince: f.Now - 5*time.Second}
			want := []Move{{Slot: number, From: "a", To: "b", Why: NotAcquired}}
			if diff := cmp.Diff(want, f.plan().Moves); diff != "" {
				t.Errorf("slot %d, the others with %s (-want +got):\n%s", number, others, diff)
			}
		}
	}
}

func TestWithoutReplicas(t *testing.T) {
	w := World{Now: time.Hour, Slots: []Slot{{Home: "a", HomeUntil: 2 * time.Hour}}}
	if diff := cmp.Diff(Verdict{}, Assign(DefaultConfig(), w)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestShares: a has 1 + 2 machines, b 3 machines at twice the capacity. The mean is (11 + 21 + 31)
// / 3 = 21; a carries 32.
func TestShares(t *testing.T) {
	f := newFleet(3, "b", "a")
	f.replica("b").Capacity = 2
	f.config.UnevenAbove = 2
	f.Slots = []Slot{{Assigned: "a", Weight: 1}, {Assigned: "a", Weight: 2}, {Assigned: "b", Weight: 3}}
	want := Verdict{Shares: []Share{{"a", 2, 3}, {"b", 1, 3}}, Imbalance: 32.0 / 21}
	if diff := cmp.Diff(want, f.plan(), cmpopts.EquateApprox(0, 1e-9)); diff != "" {
		t.Error(diff)
	}
}

// TestAgain checks that Again is the first of the times at which the result may change.
func TestAgain(t *testing.T) {
	f := newFleet(1, "a")
	s := &f.Slots[0]
	*s = Slot{Assigned: "a", Home: "b", HomeUntil: f.Now + time.Minute, Moved: f.Now - time.Minute}
	if got := f.plan().Again; got != f.Now+time.Minute {
		t.Errorf("a home until in a minute: got %v", got-f.Now)
	}
	s.UnownedSince = f.Now - time.Second
	if got := f.plan().Again; got != f.Now+4*time.Second {
		t.Errorf("unowned for a second: got %v", got-f.Now)
	}
	*s = Slot{Assigned: "a", Moved: f.Now - time.Minute}
	if got := f.plan().Again; got != f.Now+4*time.Minute {
		t.Errorf("resting for another 4 minutes: got %v", got-f.Now)
	}
	*s = Slot{Assigned: "a"}
	if got := f.plan().Again; got != 0 {
		t.Errorf("nothing to wait for: got %v", got)
	}
}

// TestNonsense checks that Assign returns a result for any content of Leases.
func TestNonsense(t *testing.T) {
	f := newFleet(4, "a", "b")
	f.Replicas[0].Capacity, f.Replicas[1].Capacity = math.NaN(), math.Inf(1)
	f.Slots[0].Weight, f.Slots[1].Weight = math.MaxInt64, math.MinInt64
	f.settle(t)
	if got := f.counts(); got["a"]+got["b"] != 4 {
		t.Errorf("want all four slots assigned, got %v", got)
	}
}

func TestValidate(t *testing.T) {
	if err := DefaultConfig().Validate(); err != nil {
		t.Errorf("the defaults: %v", err)
	}
	for name, change := range map[string]func(*Config){
		"HomeFor":     func(c *Config) { c.HomeFor = 0 },
		"Window":      func(c *Config) { c.Window = -1 },
		"RestFor":     func(c *Config) { c.RestFor = 0 },
		"PassOverFor": func(c *Config) { c.PassOverFor = c.NotAcquiredAfter },
		"LoadShare":   func(c *Config) { c.LoadShare = c.JoinShare + 0.1 },
		"JoinShare":   func(c *Config) { c.JoinShare = 1.1 },
		"EvenBelow":   func(c *Config) { c.EvenBelow = math.NaN() },
		"UnevenAbove": func(c *Config) { c.UnevenAbove = c.EvenBelow },
	} {
		c := DefaultConfig()
		change(&c)
		if err := c.Validate(); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s is wrong: got %v", name, err)
		}
	}
}

func BenchmarkAssign(b *testing.B) {
	for _, size := range []struct{ slots, replicas int }{{256, 50}, {4096, 32}} {
		world := func(change func(*fleet)) World {
			f := newFleet(size.slots, names(size.replicas)...)
			f.plan()
			change(f)
			return f.World
		}
		for name, w := range map[string]World{
			"nothing to do": world(func(*fleet) {}),
			"first":         world(func(f *fleet) { f.Slots = make([]Slot, size.slots) }),
			"join":          world(func(f *fleet) { f.join("newcomer") }),
			"leave":         world(func(f *fleet) { f.leave("fleet-7") }),
			// The table names other replicas for most of a large newcomer's share.
			"large join": world(func(f *fleet) {
				for i := range f.Slots {
					f.Slots[i].Weight = int64(i % 17 * i % 13)
				}
				f.join("newcomer")
				f.replica("newcomer").Capacity = float64(size.replicas)
			}),
			"uneven": world(func(f *fleet) {
				for i := range f.Slots {
					f.Slots[i].Weight = int64(i % 17 * i % 13)
				}
			}),
		} {
			b.Run(fmt.Sprintf("%d slots/%d replicas/%s", size.slots, size.replicas, name), func(b *testing.B) {
				for b.Loop() {
					Assign(DefaultConfig(), w)
				}
			})
		}
	}
}
