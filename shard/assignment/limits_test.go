package assignment

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/worlds"
)

// TestLimits: small worlds at one o'clock, in which not every replica can be given every slot.
func TestLimits(t *testing.T) {
	const now = time.Hour
	replica := func(name string, limit Limit) Replica {
		return Replica{Name: name, Limits: map[string]Limit{"x": limit}}
	}
	held := func(by string, weight int64) Slot {
		return Slot{Target: "x", Holder: by, Assigned: by, Weight: weight}
	}
	ofAnother := func(by string, weight int64) Slot {
		return Slot{Target: "y", Holder: by, Assigned: by, Weight: weight}
	}
	unclaimed := func(by string) Slot { return Slot{Target: "x", Assigned: by, UnownedSince: now - 5*time.Second} }
	tests := map[string]struct {
		replicas []Replica
		slots    []Slot
		want     []Move
	}{
		"what an unfit replica has goes to a fit one": {
			[]Replica{replica("a", Evict), replica("b", NoLimit)},
			[]Slot{held("a", 5), held("b", 5)},
			[]Move{{Slot: 0, From: "a", To: "b", Why: Unfit}},
		},
		"it keeps the slots of another target cluster": {
			[]Replica{replica("a", Evict), replica("b", NoLimit)},
			[]Slot{held("a", 5), {Target: "y", Holder: "a", Assigned: "a", Weight: 5}, held("b", 5)},
			[]Move{{Slot: 0, From: "a", To: "b", Why: Unfit}},
		},
		"nobody is fit: everything stays": {
			[]Replica{replica("a", Evict), replica("b", Evict), replica("c", Retry)}, []Slot{held("a", 5), held("b", 5), held("c", 5)}, nil,
		},
		"one that rests is better than one that is unfit": {
			[]Replica{replica("a", Evict), replica("b", Rest)},
			[]Slot{held("a", 5), held("b", 5)},
			[]Move{{Slot: 0, From: "a", To: "b", Why: Unfit}},
		},
		"a dead one's slot goes to nobody who is unfit": {
			[]Replica{replica("a", Evict), replica("b", NoLimit)},
			[]Slot{{Target: "x", Assigned: "dead"}, held("b", 50)},
			[]Move{{Slot: 0, From: "dead", To: "b", Why: Gone}},
		},
		"unless all are": {
			[]Replica{replica("a", Evict)}, []Slot{{Target: "x", Assigned: "dead"}}, []Move{{Slot: 0, From: "dead", To: "a", Why: Gone}},
		},
		"an unfit one that holds a dead one's slot gives it up": {
			[]Replica{replica("a", Evict), replica("b", NoLimit)},
			[]Slot{{Target: "x", Holder: "a", Assigned: "dead", Weight: 5}, held("b", 5)},
			[]Move{{Slot: 0, From: "dead", To: "b", Why: Gone}},
		},
		"what an unfit replica is to hold, and another still does, goes to the least busy": {
			[]Replica{replica("a", Evict), replica("b", NoLimit), replica("c", NoLimit)},
			[]Slot{{Target: "x", Holder: "b", Assigned: "a", Weight: 5}, held("b", 9), held("c", 5)},
			[]Move{{Slot: 0, From: "a", To: "c", Why: Unfit}},
		},
		"one that is tried gets no slot that has just moved": {
			[]Replica{replica("a", NoLimit), replica("b", Probe)},
			[]Slot{
				{Target: "x", Holder: "a", Assigned: "a", Weight: 1, Moved: now - 59*time.Second},
				held("a", 2),
				{Target: "x", Holder: "a", Assigned: "a", Weight: 1, Moved: now - 59*time.Second},
			},
			[]Move{{Slot: 1, From: "a", To: "b", Why: Joined}},
		},
		"an unclaimed slot does not go to one that rests, if another will do": {
			[]Replica{replica("a", NoLimit), replica("b", Rest), replica("c", NoLimit)},
			[]Slot{unclaimed("a"), held("b", 1), held("c", 9), held("a", 9)},
			[]Move{{Slot: 0, From: "a", To: "c", Why: NotAcquired}},
		},
		"and goes there if none will": {
			[]Replica{replica("a", NoLimit), replica("b", Rest)},
			[]Slot{unclaimed("a"), held("b", 1), held("a", 1)},
			[]Move{{Slot: 0, From: "a", To: "b", Why: NotAcquired}},
		},
		"home rests": {
			[]Replica{replica("a", Rest), replica("b", NoLimit)},
			[]Slot{held("a", 5), {Target: "x", Holder: "b", Assigned: "b", Weight: 5, Home: "a", HomeUntil: now + 1}},
			nil,
		},
		"a new one is tried with the lightest slot, and gets no more": {
			[]Replica{replica("a", NoLimit), replica("b", Probe)},
			[]Slot{held("a", 2), held("a", 1), held("a", 2), held("a", 2)},
			[]Move{{Slot: 1, From: "a", To: "b", Why: Joined}},
		},
		"with one that has its home there, if there is one": {
			[]Replica{replica("a", NoLimit), replica("b", Probe)},
			[]Slot{held("a", 1), {Target: "x", Holder: "a", Assigned: "a", Weight: 9, Home: "b", HomeUntil: now + 1}},
			[]Move{{Slot: 1, From: "a", To: "b", Why: Joined}},
		},
		"so is one that was unfit": {
			[]Replica{replica("a", NoLimit), replica("b", Retry)},
			[]Slot{held("a", 2), held("a", 1)},
			[]Move{{Slot: 1, From: "a", To: "b", Why: Joined}},
		},
		"one that is tried keeps what it has, and gets no more": {
			[]Replica{replica("a", NoLimit), replica("b", Probe), replica("c", Retry)},
			[]Slot{held("a", 2), held("a", 2), held("a", 2), held("b", 1), held("c", 1)},
			nil,
		},
		"one that did not take what it was given gets one more than it holds": {
			[]Replica{replica("a", NoLimit), replica("b", ProbeMore)},
			[]Slot{held("a", 2), held("a", 1), held("a", 2), held("b", 0), held("b", 1)},
			[]Move{{Slot: 1, From: "a", To: "b", Why: Joined}},
		},
		"and no second one before it holds that": {
			[]Replica{replica("a", NoLimit), replica("b", ProbeMore)},
			[]Slot{held("a", 2), held("a", 2), held("a", 2), held("b", 0), {Target: "x", Assigned: "b", Weight: 1}},
			nil,
		},
		"one that does not take a slot is given no other at the same time": {
			[]Replica{replica("a", NoLimit), replica("b", Probe)},
			[]Slot{held("a", 2), held("a", 1), held("a", 2), {Target: "x", Assigned: "b", Weight: 1, UnownedSince: 1}},
			[]Move{{Slot: 3, From: "b", To: "a", Why: NotAcquired}},
		},
		"also where it has no limit yet": {
			[]Replica{replica("a", NoLimit), replica("b", NoLimit)},
			[]Slot{held("a", 2), held("a", 1), held("a", 2), {Target: "x", Assigned: "b", Weight: 1, UnownedSince: 1}},
			[]Move{{Slot: 3, From: "b", To: "a", Why: NotAcquired}},
		},
		"nobody's only slot is taken to try another": {
			[]Replica{replica("a", NoLimit), replica("b", Probe)}, []Slot{held("a", 1)}, nil,
		},
		"what nobody has served yet is shared by all that are new": {
			[]Replica{replica("a", Probe), replica("b", NoLimit)},
			[]Slot{{Target: "x"}, {Target: "x"}},
			[]Move{{Slot: 0, To: "a", Why: New}, {Slot: 1, To: "b", Why: New}},
		},
		"what nobody has served yet goes to no new one that did not take it just now": {
			[]Replica{replica("a", Probe), replica("b", NoLimit)},
			[]Slot{{Target: "x", Passed: map[string]time.Duration{"a": now + 1}}, held("a", 0), held("b", 5)},
			[]Move{{Slot: 0, To: "b", Why: New}},
		},
		"what nobody has served yet does not go to one that rests": {
			[]Replica{replica("a", Rest), replica("b", NoLimit)},
			[]Slot{{Target: "x"}, held("a", 0), held("b", 5)},
			[]Move{{Slot: 0, To: "b", Why: New}},
		},
		"a dead one's slot does not go to one that is new": {
			[]Replica{replica("a", Probe), replica("b", NoLimit)},
			[]Slot{{Target: "x", Assigned: "dead"}, held("a", 0), held("b", 5)},
			[]Move{{Slot: 0, From: "dead", To: "b", Why: Gone}},
		},
		"one that did not take a slot just now is better than one that is unfit": {
			[]Replica{replica("a", Evict), replica("b", NoLimit)},
			[]Slot{{Target: "x", Assigned: "dead", Passed: map[string]time.Duration{"b": now + 1}}, held("b", 9)},
			[]Move{{Slot: 0, From: "dead", To: "b", Why: Gone}},
		},
		"one that is tried does not get a slot that it did not take just now": {
			[]Replica{replica("a", NoLimit), replica("b", Probe)},
			[]Slot{{Target: "x", Holder: "a", Assigned: "a", Weight: 1, Passed: map[string]time.Duration{"b": now + 1}}, held("a", 2)},
			[]Move{{Slot: 1, From: "a", To: "b", Why: Joined}},
		},
		"one that is tried does not get a slot that moves for another reason, and the first of equal ones": {
			[]Replica{replica("a", NoLimit), replica("b", Probe)},
			[]Slot{{Target: "x", Assigned: "dead"}, held("a", 2), held("a", 2)},
			[]Move{{Slot: 0, From: "dead", To: "a", Why: Gone}, {Slot: 1, From: "a", To: "b", Why: Joined}},
		},
		"one that is tried gets the slot that has its home there, also before a lighter one": {
			[]Replica{replica("a", NoLimit), replica("b", Probe)},
			[]Slot{{Target: "x", Holder: "a", Assigned: "a", Weight: 9, Home: "b", HomeUntil: now + 1}, held("a", 1)},
			[]Move{{Slot: 0, From: "a", To: "b", Why: Joined}},
		},
		// a has 11 × 11 = 121, b 22, the mean is 47.7, and a share of the slots is 4.3. What a has, c cannot be given.
		"a newcomer takes nothing from another newcomer": {
			[]Replica{replica("a", NoLimit), replica("b", Rest), replica("c", Rest)},
			append(slices.Repeat([]Slot{held("a", 1)}, 11), ofAnother("b", 1), ofAnother("b", 1)),
			nil,
		},
		// The mean is 40. b has 1, and 42 with the only slot that it can be given: 1.05 of the mean.
		"a newcomer gets a slot that makes it 1.05 of the mean": {
			[]Replica{replica("a", NoLimit), replica("b", Rest)},
			slices.Concat([]Slot{ofAnother("a", 4), held("a", 3)}, slices.Repeat([]Slot{held("a", 0)}, 7), []Slot{ofAnother("b", 0)}),
			[]Move{{Slot: 0, From: "a", To: "b", Why: Joined}},
		},
		"a replica that carries too much gives to one that is busier than one that rests": {
			[]Replica{replica("a", NoLimit), replica("b", Rest), replica("c", NoLimit)},
			[]Slot{held("a", 5), held("a", 5), held("a", 5), held("a", 5), held("b", 5), held("c", 7)},
			[]Move{{Slot: 0, From: "a", To: "c", Why: Load}},
		},
		"a replica that carries too much gives nothing to one that rests": {
			[]Replica{replica("a", NoLimit), replica("b", Rest)},
			[]Slot{held("a", 5), held("a", 5), held("a", 5), held("b", 1)},
			nil,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got := Assign(DefaultConfig(), World{Now: now, Replicas: test.replicas, Slots: test.slots})
			if diff := cmp.Diff(test.want, got.Moves); diff != "" {
				t.Errorf("moves (-want +got):\n%s", diff)
			}
		})
	}
}

// TestLimitsAreKept: whatever the world, nothing moves by choice to a replica that can be given nothing, one that is tried gets one
// slot at most that it does not hold, and an unfit one keeps nothing that a fit one could be given.
func TestLimitsAreKept(t *testing.T) {
	worlds.Check(t, 1, func(t *rapid.T) {
		f := generate(t)
		limits, slots := map[string]Limit{}, map[string]int{}
		someFit := false
		for i := range f.Replicas {
			r := &f.Replicas[i]
			limits[r.Name] = rapid.SampledFrom([]Limit{NoLimit, NoLimit, Probe, ProbeMore, Rest, Evict, Retry}).Draw(t, "limit")
			r.Limits = map[string]Limit{"": limits[r.Name]}
			someFit = someFit || limits[r.Name] == NoLimit && !r.Leaving
		}
		for _, s := range f.Slots {
			slots[s.Assigned]++
		}
		before := append([]Slot(nil), f.Slots...)
		moved, tried := map[int]bool{}, map[string]int{}
		moves := Assign(f.config, f.World).Moves
		for _, m := range moves {
			slots[m.From]--
			slots[m.To]++
			f.Slots[m.Slot].Assigned = m.To
		}
		lacks := map[string]int{} // of what it is given
		for _, s := range f.Slots {
			if s.Holder != s.Assigned {
				lacks[s.Assigned]++
			}
		}
		for _, m := range moves {
			moved[m.Slot] = true
			if limit := limits[m.To]; m.Why == Joined && limit != NoLimit {
				tried[m.To]++
				mayHave := map[Limit]bool{Probe: slots[m.To] == 1, ProbeMore: lacks[m.To] <= 1, Retry: slots[m.To] == 1}[limit]
				if !mayHave || tried[m.To] > 1 {
					t.Fatalf("%+v goes to one with %d slots and the limit %d", m, slots[m.To], limit)
				}
			} else if (m.Why == Home || m.Why == Load) && limit != NoLimit || (m.Why == Unfit || m.Why == NotAcquired) && limit >= Evict {
				t.Fatalf("%+v goes to one with the limit %d", m, limit)
			}
		}
		for i, s := range before {
			if limits[s.Assigned] == Evict && someFit && !moved[i] && len(s.Passed) == 0 && isLive(f, s.Assigned) {
				t.Fatalf("slot %d stays with an unfit replica: %+v", i, s)
			}
		}
	})
}

// isLive reports whether a replica is there and does not leave.
func isLive(f *fleet, name string) bool {
	for _, r := range f.Replicas {
		if r.Name == name {
			return !r.Leaving
		}
	}
	return false
}
