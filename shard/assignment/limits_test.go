package assignment

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/worlds"
)

// TestLimits uses small worlds at one o'clock, in which not every slot can be assigned to every
// replica.
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
	notAcquired := func(by string) Slot { return Slot{Target: "x", Assigned: by, UnownedSince: now - 5*time.Second} }
	tests := map[string]struct {
		replicas []Replica
		slots    []Slot
		want     []Move
	}{
		"the slots of an unfit replica are assigned to a fit one": {
			[]Replica{replica("a", Evict), replica("b", NoLimit)},
			[]Slot{held("a", 5), held("b", 5)},
			[]Move{{Slot: 0, From: "a", To: "b", Why: Unfit}},
		},
		"it keeps the slots of another target cluster": {
			[]Replica{replica("a", Evict), replica("b", NoLimit)},
			[]Slot{held("a", 5), {Target: "y", Holder: "a", Assigned: "a", Weight: 5}, held("b", 5)},
			[]Move{{Slot: 0, From: "a", To: "b", Why: Unfit}},
		},
		"no replica is fit: everything stays": {
			[]Replica{replica("a", Evict), replica("b", Evict), replica("c", Retry)}, []Slot{held("a", 5), held("b", 5), held("c", 5)}, nil,
		},
		"a resting replica is better than an unfit one": {
			[]Replica{replica("a", Evict), replica("b", Rest)},
			[]Slot{held("a", 5), held("b", 5)},
			[]Move{{Slot: 0, From: "a", To: "b", Why: Unfit}},
		},
		"a dead replica's slot is not assigned to an unfit one": {
			[]Replica{replica("a", Evict), replica("b", NoLimit)},
			[]Slot{{Target: "x", Assigned: "dead"}, held("b", 50)},
			[]Move{{Slot: 0, From: "dead", To: "b", Why: Gone}},
		},
		"unless all replicas are unfit": {
			[]Replica{replica("a", Evict)}, []Slot{{Target: "x", Assigned: "dead"}}, []Move{{Slot: 0, From: "dead", To: "a", Why: Gone}},
		},
		"an unfit replica does not keep a dead one's slot that it holds": {
			[]Replica{replica("a", Evict), replica("b", NoLimit)},
			[]Slot{{Target: "x", Holder: "a", Assigned: "dead", Weight: 5}, held("b", 5)},
			[]Move{{Slot: 0, From: "dead", To: "b", Why: Gone}},
		},
		"a slot that is assigned to an unfit replica, and that another still holds, is assigned to the least busy": {
			[]Replica{replica("a", Evict), replica("b", NoLimit), replica("c", NoLimit)},
			[]Slot{{Target: "x", Holder: "b", Assigned: "a", Weight: 5}, held("b", 9), held("c", 5)},
			[]Move{{Slot: 0, From: "a", To: "c", Why: Unfit}},
		},
		"a probed replica gets no slot that has just moved": {
			[]Replica{replica("a", NoLimit), replica("b", Probe)},
			[]Slot{
				{Target: "x", Holder: "a", Assigned: "a", Weight: 1, Moved: now - 59*time.Second},
				held("a", 2),
				{Target: "x", Holder: "a", Assigned: "a", Weight: 1, Moved: now - 59*time.Second},
			},
			[]Move{{Slot: 1, From: "a", To: "b", Why: Joined}},
		},
		"a slot that was not acquired is not assigned to a resting replica, if another can take it": {
			[]Replica{replica("a", NoLimit), replica("b", Rest), replica("c", NoLimit)},
			[]Slot{notAcquired("a"), held("b", 1), held("c", 9), held("a", 9)},
			[]Move{{Slot: 0, From: "a", To: "c", Why: NotAcquired}},
		},
		"it is assigned to a resting replica if no other can take it": {
			[]Replica{replica("a", NoLimit), replica("b", Rest)},
			[]Slot{notAcquired("a"), held("b", 1), held("a", 1)},
			[]Move{{Slot: 0, From: "a", To: "b", Why: NotAcquired}},
		},
		"its home rests": {
			[]Replica{replica("a", Rest), replica("b", NoLimit)},
			[]Slot{held("a", 5), {Target: "x", Holder: "b", Assigned: "b", Weight: 5, Home: "a", HomeUntil: now + 1}},
			nil,
		},
		"a new replica is probed with the lightest slot, and gets no more": {
			[]Replica{replica("a", NoLimit), replica("b", Probe)},
			[]Slot{held("a", 2), held("a", 1), held("a", 2), held("a", 2)},
			[]Move{{Slot: 1, From: "a", To: "b", Why: Joined}},
		},
		"it is probed with a slot that has its home there, if there is one": {
			[]Replica{replica("a", NoLimit), replica("b", Probe)},
			[]Slot{held("a", 1), {Target: "x", Holder: "a", Assigned: "a", Weight: 9, Home: "b", HomeUntil: now + 1}},
			[]Move{{Slot: 1, From: "a", To: "b", Why: Joined}},
		},
		"a replica that was unfit is probed with the lightest slot": {
			[]Replica{replica("a", NoLimit), replica("b", Retry)},
			[]Slot{held("a", 2), held("a", 1)},
			[]Move{{Slot: 1, From: "a", To: "b", Why: Joined}},
		},
		"a probed replica keeps what it has, and gets no more": {
			[]Replica{replica("a", NoLimit), replica("b", Probe), replica("c", Retry)},
			[]Slot{held("a", 2), held("a", 2), held("a", 2), held("b", 1), held("c", 1)},
			nil,
		},
		"a replica that did not take its slots gets one more than it holds": {
			[]Replica{replica("a", NoLimit), replica("b", ProbeMore)},
			[]Slot{held("a", 2), held("a", 1), held("a", 2), held("b", 0), held("b", 1)},
			[]Move{{Slot: 1, From: "a", To: "b", Why: Joined}},
		},
		"it gets no second one before it holds that": {
			[]Replica{replica("a", NoLimit), replica("b", ProbeMore)},
			[]Slot{held("a", 2), held("a", 2), held("a", 2), held("b", 0), {Target: "x", Assigned: "b", Weight: 1}},
			nil,
		},
		"a replica that does not take a slot is assigned no other at the same time": {
			[]Replica{replica("a", NoLimit), replica("b", Probe)},
			[]Slot{held("a", 2), held("a", 1), held("a", 2), {Target: "x", Assigned: "b", Weight: 1, UnownedSince: 1}},
			[]Move{{Slot: 3, From: "b", To: "a", Why: NotAcquired}},
		},
		"also if it has no limit yet": {
			[]Replica{replica("a", NoLimit), replica("b", NoLimit)},
			[]Slot{held("a", 2), held("a", 1), held("a", 2), {Target: "x", Assigned: "b", Weight: 1, UnownedSince: 1}},
			[]Move{{Slot: 3, From: "b", To: "a", Why: NotAcquired}},
		},
		"the only slot of a replica is not used to probe another": {
			[]Replica{replica("a", NoLimit), replica("b", Probe)}, []Slot{held("a", 1)}, nil,
		},
		"slots that were never served are shared by all new replicas": {
			[]Replica{replica("a", Probe), replica("b", NoLimit)},
			[]Slot{{Target: "x"}, {Target: "x"}},
			[]Move{{Slot: 0, To: "a", Why: New}, {Slot: 1, To: "b", Why: New}},
		},
		"a slot that was never served is not assigned to a new replica that did not take it just now": {
			[]Replica{replica("a", Probe), replica("b", NoLimit)},
			[]Slot{{Target: "x", Passed: map[string]time.Duration{"a": now + 1}}, held("a", 0), held("b", 5)},
			[]Move{{Slot: 0, To: "b", Why: New}},
		},
		"a slot that was never served is not assigned to a resting replica": {
			[]Replica{replica("a", Rest), replica("b", NoLimit)},
			[]Slot{{Target: "x"}, held("a", 0), held("b", 5)},
			[]Move{{Slot: 0, To: "b", Why: New}},
		},
		"a dead replica's slot is not assigned to a new one": {
			[]Replica{replica("a", Probe), replica("b", NoLimit)},
			[]Slot{{Target: "x", Assigned: "dead"}, held("a", 0), held("b", 5)},
			[]Move{{Slot: 0, From: "dead", To: "b", Why: Gone}},
		},
		"a replica that did not take the slot just now is better than an unfit one": {
			[]Replica{replica("a", Evict), replica("b", NoLimit)},
			[]Slot{{Target: "x", Assigned: "dead", Passed: map[string]time.Duration{"b": now + 1}}, held("b", 9)},
			[]Move{{Slot: 0, From: "dead", To: "b", Why: Gone}},
		},
		"a probed replica does not get a slot that it did not take just now": {
			[]Replica{replica("a", NoLimit), replica("b", Probe)},
			[]Slot{{Target: "x", Holder: "a", Assigned: "a", Weight: 1, Passed: map[string]time.Duration{"b": now + 1}}, held("a", 2)},
			[]Move{{Slot: 1, From: "a", To: "b", Why: Joined}},
		},
		"a probed replica gets no slot that moves for another reason, and the first of equal ones": {
			[]Replica{replica("a", NoLimit), replica("b", Probe)},
			[]Slot{{Target: "x", Assigned: "dead"}, held("a", 2), held("a", 2)},
			[]Move{{Slot: 0, From: "dead", To: "a", Why: Gone}, {Slot: 1, From: "a", To: "b", Why: Joined}},
		},
		"a probed replica gets the slot that has its home there rather than a lighter one": {
			[]Replica{replica("a", NoLimit), replica("b", Probe)},
			[]Slot{{Target: "x", Holder: "a", Assigned: "a", Weight: 9, Home: "b", HomeUntil: now + 1}, held("a", 1)},
			[]Move{{Slot: 0, From: "a", To: "b", Why: Joined}},
		},
		// a has 11 × 11 = 121, b 22, the mean is 47.7, and a share of the slots is 4.3. The slots of a
		// cannot be assigned to c.
		"a newcomer takes nothing from another newcomer": {
			[]Replica{replica("a", NoLimit), replica("b", Rest), replica("c", Rest)},
			append(slices.Repeat([]Slot{held("a", 1)}, 11), ofAnother("b", 1), ofAnother("b", 1)),
			nil,
		},
		// The mean is 40. b has 1, and 42 with the only slot that can be assigned to it: 1.05 of the
		// mean.
		"a newcomer gets a slot that makes it 1.05 of the mean": {
			[]Replica{replica("a", NoLimit), replica("b", Rest)},
			slices.Concat([]Slot{ofAnother("a", 4), held("a", 3)}, slices.Repeat([]Slot{held("a", 0)}, 7), []Slot{ofAnother("b", 0)}),
			[]Move{{Slot: 0, From: "a", To: "b", Why: Joined}},
		},
		"a replica that carries too much hands over to a busier one rather than to a resting one": {
			[]Replica{replica("a", NoLimit), replica("b", Rest), replica("c", NoLimit)},
			[]Slot{held("a", 5), held("a", 5), held("a", 5), held("a", 5), held("b", 5), held("c", 7)},
			[]Move{{Slot: 0, From: "a", To: "c", Why: Load}},
		},
		"a replica that carries too much hands nothing over to a resting one": {
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

// TestLimitsAreKept checks that, in any world, nothing moves by choice to a replica that cannot be
// assigned more, a probed replica gets one slot at most that it does not hold, and an unfit one
// keeps nothing that could be assigned to a fit one.
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
		lacks := map[string]int{} // of what is assigned to it
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
					t.Fatalf("move to a replica with %d slots and the limit %d: %+v", slots[m.To], limit, m)
				}
			} else if (m.Why == Home || m.Why == Load) && limit != NoLimit || (m.Why == Unfit || m.Why == NotAcquired) && limit >= Evict {
				t.Fatalf("move to a replica with the limit %d: %+v", limit, m)
			}
		}
		for i, s := range before {
			if limits[s.Assigned] == Evict && someFit && !moved[i] && len(s.Passed) == 0 && isLive(f, s.Assigned) {
				t.Fatalf("slot %d stays with an unfit replica: %+v", i, s)
			}
		}
	})
}

// isLive reports whether a replica lives and does not leave.
func isLive(f *fleet, name string) bool {
	for _, r := range f.Replicas {
		if r.Name == name {
			return !r.Leaving
		}
	}
	return false
}
