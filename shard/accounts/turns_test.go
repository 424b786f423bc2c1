package accounts

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	member "github.com/machine-controller-fleet/machine-controller-fleet/membership"
)

// peer answers what this replica reports as another replica does that reaches all: each reported
// key is confirmed from then on, for 6 minutes after it was last reported (freshFor+tryRarely).
type peer map[string]time.Time

func (p peer) receives(s *story, seen map[string]int) {
	for _, f := range s.Report(s.now).Failing {
		p[f.Key] = s.now
		seen[f.Key]++
	}
	var report member.Accounts
	for _, key := range slices.Sorted(maps.Keys(p)) {
		if s.now.Sub(p[key]) < 6*time.Minute {
			report.Asked = append(report.Asked, member.Account{Key: key, Reached: true})
		}
	}
	s.Heard([]member.Accounts{report})
}

// More accounts fail here than are reported at a time, and another replica reaches all of them:
// each has its turn.
func TestEachFailingAccountHasItsTurnWhenOthersReachThem(t *testing.T) {
	for name, test := range map[string]struct{ namespaces, each int }{"three of a namespace": {1, 3}, "16 of 8 namespaces": {8, 2}} {
		t.Run(name, func(t *testing.T) {
			s, p, seen := newStory(t), peer{}, map[string]int{}
			for n := range test.namespaces {
				for i := range test.each {
					s.call(Use{Key: fmt.Sprintf("n%d/%d", n, i), Provider: fmt.Sprint("p", n), Class: fmt.Sprintf("n%d/c%d", n, i)}, Unanswered)
				}
			}
			for range 2 * 3600 {
				s.try(always(Unanswered))
				p.receives(s, seen)
				s.now = s.now.Add(time.Second)
			}
			if len(seen) != test.namespaces*test.each {
				t.Errorf("in 2 h only %d of %d accounts were reported: %v", len(seen), test.namespaces*test.each, slices.Sorted(maps.Keys(seen)))
			}
		})
	}
}

// triesOf runs four tries at a time, as a replica does, of which those that hang take TryTimeout.
// It returns when those of a key began.
func (s *story) triesOf(d time.Duration, hangs func(Try) bool, key string, each func(i int)) (at []time.Duration) {
	type running struct {
		try Try
		end time.Time
	}
	var all []running
	start := s.now
	for i := 0; s.now.Sub(start) < d; i++ {
		all = slices.DeleteFunc(all, func(r running) bool {
			if s.now.Before(r.end) {
				return false
			}
			e := Works
			if hangs(r.try) {
				e = Unanswered
			}
			s.Tried(r.try, e, s.now)
			return true
		})
		for _, try := range s.Due(4-len(all), s.now) {
			end := s.now
			if hangs(try) {
				end = end.Add(TryTimeout)
			}
			if try.Key == key {
				at = append(at, s.now.Sub(start))
			}
			all = append(all, running{try, end})
		}
		each(i)
		s.now = s.now.Add(time.Second)
	}
	return at
}

// A tenant has accounts that hang. What another replica asks for another tenant is tried all the
// same, about every 30 s.
func TestTriesOfATenantDoNotDelayThoseOfOthers(t *testing.T) {
	for name, test := range map[string]struct {
		namespaces int
		alternates bool
	}{"a namespace": {1, false}, "four namespaces": {4, false}, "a namespace, and one account alternates": {1, true}} {
		t.Run(name, func(t *testing.T) {
			s := newStory(t)
			for n := range test.namespaces {
				for i := range 63 {
					u := Use{Key: fmt.Sprintf("hostile%d/%d", n, i), Provider: "p", Class: "hostile/x"}
					s.Called(u, Unanswered, s.now, s.now)
				}
			}
			s.now = s.now.Add(FailAfter)
			hangs := func(try Try) bool { return try.Class == "hostile/x" }
			flips := Use{Key: "hostile0/flips", Provider: "p", Class: "hostile/y"}
			each := func(i int) {
				s.Heard([]member.Accounts{{Failing: []member.Account{{Key: "victim/1", Class: "victim/small", Slots: member.SlotSet{}.With(1)}}}})
				if test.alternates && i%30 == 0 { // a create that ends with Internal, and one that succeeds
					s.Called(flips, Unanswered, s.now, s.now)
					s.Called(flips, Works, s.now, s.now)
				}
			}
			at := s.triesOf(2*time.Hour, hangs, "victim/1", each)
			longest, last := time.Duration(0), time.Duration(0)
			for _, a := range append(at, 2*time.Hour) {
				longest, last = max(longest, a-last), a
			}
			if longest > 2*time.Minute {
				t.Errorf("the account of another tenant was not tried for %s", longest)
			}
		})
	}
}

// A class is replaced by another, as with each rollout of Gardener, while its account does not
// answer: others try the account with the new one.
func TestAFailingAccountIsReportedWithAClassThatExists(t *testing.T) {
	s := newStory(t)
	s.call(Use{Key: "a/1", Provider: "p", Class: "a/old"}, Unanswered)
	s.run(2*time.Minute, always(Unanswered))
	for range 5 * 60 { // a/old is deleted: a try of it is none
		s.call(Use{Key: "a/1", Provider: "p", Class: "a/new"}, Unanswered)
		s.run(time.Minute, func(try Try) Evidence {
			if try.Class == "a/old" {
				return Nothing
			}
			return Unanswered
		})
	}
	for _, f := range s.Report(s.now).Failing {
		if f.Class != "a/new" {
			t.Errorf("after 5 h the account is reported with class %s, which does not exist", f.Class)
		}
	}
}

// Tenants whose accounts do not answer fill all places. The accounts of another namespace get
// theirs all the same, up to an equal share, and keep it.
func TestAccountsOfANamespaceAreRememberedWhenOthersHaveMoreThanFit(t *testing.T) {
	s := newStory(t)
	hostile := func() {
		for n := range mostSuspects / mostOfNamespace {
			for i := range mostOfNamespace + 1 {
				s.Called(Use{Key: fmt.Sprintf("hostile%02d/%d", n, i), Provider: "p", Class: "hostile/x"}, Unanswered, s.now, s.now)
			}
		}
	}
	hostile()
	victims := func() (has int) {
		for i := range 10 {
			if s.suspects[fmt.Sprint("victim/", i)] != nil {
				has++
			}
		}
		return has
	}
	for i := range 10 {
		s.call(Use{Key: fmt.Sprint("victim/", i), Provider: "q", Class: "victim/small"}, Unanswered)
		hostile()
		if has, all := victims(), len(s.suspects); has != i+1 || all != mostSuspects {
			t.Fatalf("%d of %d accounts of the other namespace are remembered, and %d in total", has, i+1, all)
		}
	}
	s.run(2*FailAfter, always(Unanswered))
	for _, f := range s.Report(s.now).Failing {
		if f.Class == "victim/small" {
			return
		}
	}
	t.Error("no account of the other namespace is reported")
}

// No namespace has more than its share, so that accounts of namespaces with as many do not displace
// each other in turn.
func TestAccountsOfEqualNamespacesStay(t *testing.T) {
	s := newStory(t)
	key := func(n, i int) string { return fmt.Sprintf("n%d/%d", n, i) }
	var before []string
	for range 3 {
		for n := range 32 {
			for i := range mostOfNamespace {
				s.Called(Use{Key: key(n, i), Provider: "p", Class: "c"}, Unanswered, s.now, s.now)
			}
		}
		s.now = s.now.Add(time.Second)
		now := slices.Sorted(maps.Keys(s.suspects))
		if before != nil && !slices.Equal(before, now) {
			t.Errorf("accounts were displaced")
		}
		before = now
	}
	for n := range 32 {
		if s.suspects[key(n, 0)] == nil || len(before) != mostSuspects {
			t.Errorf("namespace %d has no place among %d", n, len(before))
		}
	}
}
