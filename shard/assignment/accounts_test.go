package assignment

import (
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/worlds"
)

// set returns a set of replicas.
func set(names ...string) map[string]bool {
	all := map[string]bool{}
	for _, name := range names {
		all[name] = true
	}
	return all
}

// TestSlotsLeaveReplicasThatDoNotReachTheirAccounts uses small worlds at one o'clock. All slots
// weigh the same.
func TestSlotsLeaveReplicasThatDoNotReachTheirAccounts(t *testing.T) {
	const now = time.Hour
	a, b, c := Replica{Name: "a"}, Replica{Name: "b"}, Replica{Name: "c"}
	limited := func(r Replica, limit Limit) Replica { r.Limits = map[string]Limit{"": limit}; return r }
	held := func(by ...string) (slots []Slot) {
		for _, name := range by {
			slots = append(slots, Slot{Holder: name, Assigned: name, Weight: 1, Moved: now - 2*time.Minute}) // none is moved for load
		}
		return slots
	}
	with := func(slots []Slot, change func(*Slot)) []Slot { change(&slots[0]); return slots }
	unreached := func(slot int, from, to string) Move { return Move{Slot: slot, From: from, To: to, Why: Unreached} }
	one := func(failing, reached []string, slots ...int) []Account {
		return []Account{{Slots: slots, Failing: set(failing...), Reached: set(reached...)}}
	}
	for name, test := range map[string]struct {
		replicas []Replica
		slots    []Slot
		accounts []Account
		want     []Move
	}{
		"all of its slots, and no others": {
			[]Replica{a, b},
			held("a", "a", "a", "b"), one([]string{"a"}, []string{"b"}, 0, 2, 3),
			[]Move{unreached(0, "a", "b"), unreached(2, "a", "b")},
		},
		"down for all":                        {[]Replica{a, b}, held("a", "b"), one([]string{"a", "b"}, nil, 0, 1), nil},
		"no other replica has reached it":     {[]Replica{a, b}, held("a", "b"), one([]string{"a"}, nil, 0), nil},
		"the one that reaches it has gone":    {[]Replica{a, b}, held("a", "b"), one([]string{"a"}, []string{"c"}, 0), nil},
		"the one that reaches it is unfit":    {[]Replica{a, limited(b, Evict)}, held("a", "a"), one([]string{"a"}, []string{"b"}, 0), nil},
		"the one that reaches it is on trial": {[]Replica{a, limited(b, Rest)}, held("a", "b"), one([]string{"a"}, []string{"b"}, 0), nil},
		"the one that reaches it was passed over": {
			[]Replica{a, b},
			with(held("a", "b"), func(s *Slot) { s.Passed = map[string]time.Duration{"b": now + 1} }),
			one([]string{"a"}, []string{"b"}, 0), nil,
		},
		"only to one that reaches it": {
			[]Replica{a, b, c}, held("a", "a", "b", "b", "c"), one([]string{"a"}, []string{"b"}, 0), []Move{unreached(0, "a", "b")},
		},
		"it has moved not long ago": {
			[]Replica{a, b}, with(held("a", "b"), func(s *Slot) { s.StaysUntil = now + 1 }), one([]string{"a"}, []string{"b"}, 0), nil,
		},
		"it has moved long ago": {
			[]Replica{a, b},
			with(held("a", "a", "b"), func(s *Slot) { s.StaysUntil = now }), one([]string{"a"}, []string{"b"}, 0),
			[]Move{unreached(0, "a", "b")},
		},
		// 44 in all, the mean is 14.67: with 3 of the slots b has 33. Then a is idle.
		"until it has twice the mean, the rest stays": {
			[]Replica{a, b, c},
			held("a", "a", "c", "b"), one([]string{"a", "c"}, []string{"b"}, 0, 1, 2),
			[]Move{unreached(0, "a", "b"), unreached(1, "a", "b"), {Slot: 3, From: "b", To: "a", Why: Joined}},
		},
		"one account at a time": {
			[]Replica{a, b},
			held("a", "a", "b", "b"),
			slices.Concat(one([]string{"a"}, []string{"b"}, 1), one([]string{"a"}, []string{"b"}, 0)),
			[]Move{unreached(1, "a", "b")},
		},
		"the next one where the first has no slots": {
			[]Replica{a, b},
			held("a", "a", "b", "b"),
			slices.Concat(one([]string{"a"}, []string{"b"}, 2), one([]string{"a"}, []string{"b"}, 0)),
			[]Move{unreached(0, "a", "b")},
		},
		"the next one when the slots of the first have been acquired": {
			[]Replica{a, b},
			with(held("b", "a"), func(s *Slot) { s.Holder, s.MovedForAccount = "a", now-time.Second }),
			one([]string{"a"}, []string{"b"}, 1), nil,
		},
		"two accounts that fail on different replicas": {
			[]Replica{a, b},
			held("a", "b"),
			slices.Concat(one([]string{"a"}, []string{"b"}, 0, 1), one([]string{"b"}, []string{"a"}, 0, 1)), nil,
		},
		"slots that do not exist": {[]Replica{a, b}, held("a", "b"), one([]string{"a"}, []string{"b"}, -1, 7), nil},
	} {
		w := World{Now: now, Replicas: test.replicas, Slots: test.slots, Accounts: test.accounts}
		if diff := cmp.Diff(test.want, Assign(DefaultConfig(), w).Moves); diff != "" {
			t.Errorf("%s: moves (-want +got):\n%s", name, diff)
		}
	}
}

// TestOtherMovesPreferReplicasThatReachTheAccounts checks moves for other reasons.
func TestOtherMovesPreferReplicasThatReachTheAccounts(t *testing.T) {
	const now = time.Hour
	failing := func(names ...string) []Account { return []Account{{Slots: []int{0}, Failing: set(names...)}} }
	at := func(assigned string) Slot { return Slot{Holder: assigned, Assigned: assigned, Weight: 1} }
	home := at("b")
	home.Home, home.HomeUntil = "a", now+1
	for name, test := range map[string]struct {
		slots    []Slot
		accounts []Account
		want     string // the replica that slot 0 is assigned to
	}{
		"a dead replica's, to the idle one":            {[]Slot{at("dead"), at("b"), at("b")}, nil, "a"},
		"a dead replica's, to the one that reaches it": {[]Slot{at("dead"), at("b"), at("a"), at("a"), at("a")}, failing("b"), "a"},
		"unless that one has twice the mean":           {[]Slot{at("dead"), at("a"), at("a"), at("a"), at("a"), at("c")}, failing("b", "c"), "c"},
		"for load, not to one that does not reach it":  {[]Slot{{Holder: "b", Assigned: "b", Weight: 9}, at("b")}, failing("a"), "b"},
		"for load, where none reaches it": {
			[]Slot{{Holder: "b", Assigned: "b", Weight: 9}, {Holder: "b", Assigned: "b", Weight: 9}}, failing("a", "b"), "a",
		},
		"to its home":                            {[]Slot{home, at("b")}, nil, "a"},
		"not to its home that does not reach it": {[]Slot{home, at("a")}, failing("a"), "b"},
	} {
		f := &fleet{config: DefaultConfig(), World: World{Now: now, Slots: test.slots, Accounts: test.accounts}}
		f.join("a", "b")
		if slices.ContainsFunc(f.Slots, func(s Slot) bool { return s.Assigned == "c" }) {
			f.join("c")
		}
		f.plan()
		if got := f.Slots[0].Assigned; got != test.want {
			t.Errorf("%s: it is assigned to %q, want %q", name, got, test.want)
		}
	}
}

// drawAccounts draws what replicas find out about accounts. unreachable is the truth.
func drawAccounts(t *rapid.T, f *fleet) {
	for range rapid.IntRange(0, 4).Draw(t, "accounts") {
		account := Account{Failing: map[string]bool{}, Reached: map[string]bool{}}
		for s := range f.Slots {
			if rapid.IntRange(0, 2).Draw(t, "needs it") == 0 {
				account.Slots = append(account.Slots, s)
			}
		}
		for _, r := range f.Replicas {
			switch rapid.IntRange(0, 2).Draw(t, "answer") {
			case 0:
				account.Failing[r.Name] = true
			case 1:
				account.Reached[r.Name] = true
			}
		}
		f.Accounts = append(f.Accounts, account)
	}
}

// TestMovesForAccounts checks, in any world in which the replicas do not change, that moves end,
// that each of them is to a replica that reaches the account and fails none of the slot, that what
// no replica reaches moves nothing, and that at the end no slot is left where a replica with room
// could serve it wholly.
func TestMovesForAccounts(t *testing.T) {
	worlds.Check(t, 1, func(t *rapid.T) {
		f := settled(t, rapid.SampledFrom([]int{1, 8, 64}).Draw(t, "slots"))
		drawAccounts(t, f)
		if rapid.IntRange(0, 3).Draw(t, "away for all") == 0 {
			for i := range f.Accounts {
				clear(f.Accounts[i].Reached)
			}
		}
		reachedAny := slices.ContainsFunc(f.Accounts, func(a Account) bool { return len(a.Reached) > 0 })
		for range 1000 {
			v := f.plan()
			for _, m := range v.Moves {
				if m.Why == Unreached {
					checkAccountMove(t, f, m)
				}
			}
			if !reachedAny && slices.ContainsFunc(v.Moves, func(m Move) bool { return m.Why == Unreached }) {
				t.Fatalf("no replica reaches an account, and slots move: %+v", v.Moves)
			}
			if len(v.Moves) == 0 {
				checkServed(t, f)
				return
			}
			f.Now += f.config.Window
		}
		t.Fatalf("slots still move after 1000 assignments")
	})
}

func checkAccountMove(t *rapid.T, f *fleet, m Move) {
	needs := false
	for _, account := range f.Accounts {
		if !slices.Contains(account.Slots, m.Slot) {
			continue
		}
		if account.Failing[m.To] {
			t.Fatalf("%+v is to a replica that an account of it does not answer", m)
		}
		needs = needs || account.Failing[m.From] && account.Reached[m.To]
	}
	if !needs {
		t.Fatalf("%+v serves no account", m)
	}
}

// checkServed checks a fleet at rest.
func checkServed(t *rapid.T, f *fleet) {
	costs, total := map[string]float64{}, 0.0
	cost := func(s Slot) float64 { return float64(s.Weight*costOfMachine + costOfSlot) }
	for _, s := range f.Slots {
		costs[s.Assigned] += cost(s)
		total += cost(s)
	}
	for number, s := range f.Slots {
		failsAt := map[string]bool{}
		for _, account := range f.Accounts {
			if slices.Contains(account.Slots, number) {
				maps.Copy(failsAt, account.Failing)
			}
		}
		for _, account := range f.Accounts {
			if !slices.Contains(account.Slots, number) || !account.Failing[s.Assigned] {
				continue
			}
			for name := range account.Reached {
				if !failsAt[name] && costs[name] < mostTaken*total/float64(len(f.Replicas)) {
					t.Fatalf("slot %d stays at %s, which does not reach an account that %s reaches", number, s.Assigned, name)
				}
			}
		}
	}
}
