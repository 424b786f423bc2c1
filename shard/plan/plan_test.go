package plan

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/machine-controller-fleet/machine-controller-fleet/shard/ring"
)

// TestPlan: small worlds at one o'clock, with the arithmetic beside each. A cost is ten for each machine and one for the
// slot.
func TestPlan(t *testing.T) {
	const now = time.Hour
	a, b, c := Replica{Name: "a"}, Replica{Name: "b"}, Replica{Name: "c"}
	leaving := func(r Replica) Replica { r.Leaving = true; return r }
	held := func(by string, weight int64) Slot { return Slot{Holder: by, Preferred: by, Weight: weight} }
	with := func(s Slot, change func(*Slot)) Slot { change(&s); return s }
	moved := func(s *Slot) { s.Moved = now - 2*time.Minute } // it rests
	tests := map[string]struct {
		replicas []Replica
		slots    []Slot
		want     []Move
	}{
		"nobody is there": {nil, []Slot{{}}, nil},
		"all leave: the slots stay, there is nowhere to go": {[]Replica{leaving(a)}, []Slot{held("a", 1)}, nil},
		"even: nothing moves":                               {[]Replica{a, b}, []Slot{held("a", 5), held("b", 5)}, nil},
		"a dead one's slot goes to the other": {
			[]Replica{b},
			[]Slot{held("a", 5), held("b", 5)},
			[]Move{{Slot: 0, From: "a", To: "b", Why: Gone}},
		},
		// a has 51 and b 31. Slot 2 is the heavier one: b is the less busy with it, 82 < 102. Then slot 3: a 72, b 103.
		"the heaviest first, each to the least busy": {
			[]Replica{a, b},
			[]Slot{held("a", 5), held("b", 3), {Weight: 5}, {Weight: 2}},
			[]Move{{Slot: 2, To: "b", Why: New}, {Slot: 3, To: "a", Why: New}},
		},
		"a leaver's slot remembers its home": {
			[]Replica{leaving(a), b},
			[]Slot{held("a", 5), held("b", 5)},
			[]Move{{Slot: 0, From: "a", To: "b", Why: Leaving, Home: "a"}},
		},
		"a slot that moves on keeps its first home": {
			[]Replica{leaving(b), c},
			[]Slot{with(held("b", 5), func(s *Slot) { s.Home, s.HomeUntil = "a", now+1 })},
			[]Move{{Slot: 0, From: "b", To: "c", Why: Leaving, Home: "a"}},
		},
		"home again": {
			[]Replica{a, b},
			[]Slot{with(held("b", 5), func(s *Slot) { s.Home, s.HomeUntil = "a", now+1 }), held("b", 5)},
			[]Move{{Slot: 0, From: "b", To: "a", Why: Home}},
		},
		"too late to go home": {
			[]Replica{a, b}, []Slot{held("a", 5), with(held("b", 5), func(s *Slot) { s.Home, s.HomeUntil = "a", now })}, nil,
		},
		"a home that leaves is no home": {
			[]Replica{leaving(a), b}, []Slot{with(held("b", 5), func(s *Slot) { s.Home, s.HomeUntil = "a", now+1 })}, nil,
		},
		"planned from a dead one to a live one, which had it all the time: it stays": {
			[]Replica{a, b},
			[]Slot{{Holder: "b", Preferred: "dead", Weight: 5}, held("b", 1), held("a", 6)},
			[]Move{{Slot: 0, From: "dead", To: "b", Why: Gone}},
		},
		"which has it stays also when others are less busy": {
			[]Replica{a, b, c},
			[]Slot{{Holder: "b", Preferred: "dead", Weight: 5}, with(held("b", 9), moved), held("a", 1), held("c", 1)},
			[]Move{{Slot: 0, From: "dead", To: "b", Why: Gone}},
		},
		"unless it did not take it just now": {
			[]Replica{a, b, c},
			[]Slot{
				{Holder: "b", Preferred: "dead", Weight: 5, Passed: map[string]time.Duration{"b": now + 1}},
				with(held("b", 9), moved), with(held("a", 1), moved), held("c", 1),
			},
			[]Move{{Slot: 0, From: "dead", To: "a", Why: Gone}},
		},
		"not taken for 5 s": {
			[]Replica{a, b},
			[]Slot{{Preferred: "a", UnownedSince: now - 5*time.Second}, held("a", 5), held("b", 5)},
			[]Move{{Slot: 0, From: "a", To: "b", Why: Unclaimed}},
		},
		"not taken for a little less": {
			[]Replica{a, b}, []Slot{{Preferred: "a", UnownedSince: now - 5*time.Second + 1, Weight: 5}, held("b", 5)}, nil,
		},
		"not taken, and the other did not take it either": {
			[]Replica{a, b},
			[]Slot{{Preferred: "a", UnownedSince: now - time.Minute, Passed: map[string]time.Duration{"b": now + 1}, Weight: 5}, held("b", 5)},
			nil,
		},
		"passed over, but there is nobody else": {
			[]Replica{b},
			[]Slot{{Preferred: "a", Passed: map[string]time.Duration{"b": now + 1}}},
			[]Move{{Slot: 0, From: "a", To: "b", Why: Gone}},
		},
		"home did not take it just now": {
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
		// 6 × 11 = 66 for capacities 1 and 2: 22 and 44. Half of the slots may move in a minute, which is 3.
		"a newcomer with twice the capacity, as far as the limit goes": {
			[]Replica{a, {Name: "b", Capacity: 2}},
			[]Slot{held("a", 1), held("a", 1), held("a", 1), held("a", 1), held("a", 1), held("a", 1)},
			[]Move{
				{Slot: 0, From: "a", To: "b", Why: Joined},
				{Slot: 3, From: "a", To: "b", Why: Joined},
				{Slot: 4, From: "a", To: "b", Why: Joined},
			},
		},
		// a 182, b 102, mean 142. Of a's slots the one of 3 leaves 151 and 133; the one of 5 would leave 131 and 153.
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
		"a little uneven: nothing moves":              {[]Replica{a, b}, []Slot{held("a", 3), held("a", 11), held("b", 13)}, nil},
		"one slot has all the work, and goes nowhere": {[]Replica{a, b}, []Slot{held("a", 100), held("b", 0)}, nil},
		"an empty slot does not move for the sake of load": {
			[]Replica{a, b}, []Slot{held("a", 100), held("a", 0), held("b", 0), held("b", 1)}, nil,
		},
		"while a replica is awaited only its slots move": {
			[]Replica{a, b}, // c is away
			[]Slot{held("a", 4), held("a", 10), with(held("a", 4), func(s *Slot) { s.Home, s.HomeUntil = "c", now+1 }), held("b", 10)},
			[]Move{{Slot: 2, From: "a", To: "b", Why: Load, Home: "c"}},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got := Plan(DefaultConfig(), World{Now: now, Replicas: test.replicas, Slots: test.slots})
			if diff := cmp.Diff(test.want, got.Moves); diff != "" {
				t.Errorf("moves (-want +got):\n%s", diff)
			}
		})
	}
}

// TestTheTableChooses: a carries 403 and b 404, so that a slot of 1 makes neither too busy. The table says who gets it.
func TestTheTableChooses(t *testing.T) {
	table := ring.Table(8, []string{"a", "b"})
	for number := range 8 {
		f := newFleet(0, "a", "b")
		for _, weight := range []int64{13, 13, 14} {
			f.Slots = append(f.Slots, Slot{Preferred: "a", Weight: weight})
		}
		for range 4 {
			f.Slots = append(f.Slots, Slot{Preferred: "b", Weight: 10})
		}
		f.Slots = slices.Insert(f.Slots, number, Slot{})
		want := []Move{{Slot: number, To: table[number], Why: New}}
		if diff := cmp.Diff(want, f.plan().Moves); diff != "" {
			t.Errorf("slot %d (-want +got):\n%s", number, diff)
		}
	}
}

// TestAnUnclaimedSlotMoves: also where the table names the replica that does not take it, and the other one rests.
func TestAnUnclaimedSlotMoves(t *testing.T) {
	for number := range 8 {
		f := newFleet(8, "a", "b")
		f.replica("b").Limits = map[string]Limit{"": Rest}
		for i := range f.Slots {
			f.Slots[i] = Slot{Preferred: "a", Holder: "a"}
		}
		f.Slots[number].Holder, f.Slots[number].UnownedSince = "", f.Now-5*time.Second
		want := []Move{{Slot: number, From: "a", To: "b", Why: Unclaimed}}
		if diff := cmp.Diff(want, f.plan().Moves); diff != "" {
			t.Errorf("slot %d (-want +got):\n%s", number, diff)
		}
	}
}

func TestNobodyIsThere(t *testing.T) {
	w := World{Now: time.Hour, Slots: []Slot{{Home: "a", HomeUntil: 2 * time.Hour}}}
	if diff := cmp.Diff(Verdict{}, Plan(DefaultConfig(), w)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestShares: a 1 + 2 machines, b 3 machines of twice the capacity. The mean is (11 + 21 + 31) / 3 = 21; a carries 32.
func TestShares(t *testing.T) {
	f := newFleet(3, "b", "a")
	f.replica("b").Capacity = 2
	f.config.UnevenAbove = 2
	f.Slots = []Slot{{Preferred: "a", Weight: 1}, {Preferred: "a", Weight: 2}, {Preferred: "b", Weight: 3}}
	want := Verdict{Shares: []Share{{"a", 2, 3}, {"b", 1, 3}}, Imbalance: 32.0 / 21}
	if diff := cmp.Diff(want, f.plan(), cmpopts.EquateApprox(0, 1e-9)); diff != "" {
		t.Error(diff)
	}
}

// TestAgain: planning is worth repeating when the next of the times has come.
func TestAgain(t *testing.T) {
	f := newFleet(1, "a")
	s := &f.Slots[0]
	*s = Slot{Preferred: "a", Home: "b", HomeUntil: f.Now + time.Minute, Moved: f.Now - time.Minute}
	if got := f.plan().Again; got != f.Now+time.Minute {
		t.Errorf("a home until in a minute: got %v", got-f.Now)
	}
	s.UnownedSince = f.Now - time.Second
	if got := f.plan().Again; got != f.Now+4*time.Second {
		t.Errorf("unowned for a second: got %v", got-f.Now)
	}
	*s = Slot{Preferred: "a", Moved: f.Now - time.Minute}
	if got := f.plan().Again; got != f.Now+4*time.Minute {
		t.Errorf("resting for another 4 minutes: got %v", got-f.Now)
	}
	*s = Slot{Preferred: "a"}
	if got := f.plan().Again; got != 0 {
		t.Errorf("nothing to wait for: got %v", got)
	}
}

// TestNonsense: whatever Leases say, Plan answers.
func TestNonsense(t *testing.T) {
	f := newFleet(4, "a", "b")
	f.Replicas[0].Capacity, f.Replicas[1].Capacity = math.NaN(), math.Inf(1)
	f.Slots[0].Weight, f.Slots[1].Weight = math.MaxInt64, math.MinInt64
	f.settle(t)
	if got := f.counts(); got["a"]+got["b"] != 4 {
		t.Errorf("want all four slots placed, got %v", got)
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
		"PassOverFor": func(c *Config) { c.PassOverFor = c.UnclaimedAfter },
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

func BenchmarkPlan(b *testing.B) {
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
			// Most of a large newcomer's share is not what the table names for it.
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
					Plan(DefaultConfig(), w)
				}
			})
		}
	}
}
