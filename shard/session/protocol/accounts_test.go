package protocol

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	coordinationv1 "k8s.io/api/coordination/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	member "github.com/machine-controller-fleet/machine-controller-fleet/membership"
)

// account is one account that 3 of 8 slots need.
func account(reached bool) member.Account {
	of := member.Account{Key: "ns/1", Class: "ns/small", Reached: reached}
	for _, slot := range []int{0, 1, 5} {
		of.Slots = of.Slots.With(slot)
	}
	return of
}

func failing() member.Accounts { return member.Accounts{Failing: []member.Account{account(false)}} }

func asked(reached bool) member.Accounts {
	return member.Accounts{Asked: []member.Account{account(reached)}}
}

// otherReports has the other replica report something about accounts.
func (s *stage) otherReports(a member.Accounts) {
	s.write("fleet-session-r-1", func(l *coordinationv1.Lease) {
		heldBy(another)(l)
		member.Annotate(l, v1alpha1.AnnotationFitness, serving(member.Serving).String())
		member.Annotate(l, v1alpha1.AnnotationAccounts, a.String())
	})
}

// atOther returns, for each of the slots that need the account, whether it is assigned to the other
// replica.
func (s *stage) atOther() (at [3]bool) {
	for i, slot := range []int{0, 1, 5} {
		at[i] = s.assignee(slot) == "r-1"
	}
	return at
}

// follow has the other replica acquire what is assigned to it, and release the rest.
func (s *stage) follow(d time.Duration) {
	for end := s.now + d; s.now < end; {
		s.run(time.Second)
		for slot := range 8 {
			name := member.SlotLeaseName("fleet", slot, 8)
			if holder := member.Holder(s.leases[name]); s.assignee(slot) == "r-1" && holder == "" {
				s.write(name, heldBy(another))
			} else if s.assignee(slot) == "r-0" && holder == another {
				s.write(name, heldBy(""))
			}
		}
	}
}

func TestSlotsOfAnAccountThatOneReplicaDoesNotReachAreAssignedToOthers(t *testing.T) {
	first := [3]bool{true, true, false} // the other replica has the slots 0 to 3
	for name, test := range map[string]struct {
		ours, others member.Accounts
		want         [3]bool
	}{
		"others do not reach it, and we do": {asked(true), failing(), [3]bool{}},
		"we do not, and others do":          {failing(), asked(true), [3]bool{true, true, true}},
		"it is away for all":                {failing(), failing(), first},
		"our try has failed":                {asked(false), failing(), first},
		"we have not tried yet":             {member.Accounts{}, failing(), first},
		"others run an earlier version":     {failing(), member.Accounts{}, first},
		"no replica asks":                   {asked(true), asked(true), first},
	} {
		t.Run(name, func(t *testing.T) {
			s := twoReplicas(t, 4, serving(member.Serving))
			s.step(Compared{test.ours})
			s.otherReports(test.others)
			s.follow(20 * time.Second)
			if got := s.atOther(); got != test.want {
				t.Errorf("the slots of the account are at the other replica: %v, want %v", got, test.want)
			}
		})
	}
}

func TestWhatASessionReportsOfAccountsIsOnItsLease(t *testing.T) {
	s := twoReplicas(t, 4, serving(member.Serving))
	s.step(Compared{failing()})
	s.otherReports(asked(true))
	s.run(3 * time.Second)
	got, err := member.ParseAccounts(s.leases["fleet-session-r-0"].Annotations[v1alpha1.AnnotationAccounts])
	if diff := cmp.Diff(failing(), got); err != nil || diff != "" {
		t.Errorf("%v: report (-want +got):\n%s", err, diff)
	}
	if got := s.replica.Unreached(); cmp.Diff([]string{"ns/small"}, got) != "" {
		t.Errorf("want the class of the account that we do not reach and another one does, got %q", got)
	}
	if reports, _ := s.replica.Reports(); cmp.Diff([]member.Accounts{asked(true)}, reports.Accounts) != "" {
		t.Errorf("want the report of the other session, got %+v", reports.Accounts)
	}
	s.otherReports(asked(false))
	if got := s.replica.Unreached(); len(got) > 0 {
		t.Errorf("no replica reaches it: got %q", got)
	}
}

// While a slot is handed over no replica reports what its machines need; it must not return to
// where its account fails.
func TestASlotThatIsHandedOverStillNeedsItsAccount(t *testing.T) {
	s := twoReplicas(t, 4, serving(member.Serving))
	s.step(Compared{asked(true)})
	s.otherReports(failing())
	s.follow(20 * time.Second)
	s.step(Compared{member.Accounts{Asked: []member.Account{{Key: "ns/1", Reached: true}}}})
	s.otherReports(member.Accounts{Failing: []member.Account{{Key: "ns/1", Class: "ns/small"}}})
	for _, want := range [][]int{{0, 1, 5}, nil} {
		s.follow(30 * time.Second)
		accounts := s.replica.leader.assigner.worldAccounts(at(s.now), s.replica.others.Peers())
		if len(accounts) != 1 || !slices.Equal(accounts[0].Slots, want) {
			t.Errorf("at %v: want slots %v to need the account, got %+v", s.now, want, accounts)
		}
		s.follow(time.Minute)
	}
}

// A tenant's endpoint answers one replica and then the other, as often as it helps him. Slots 0, 1
// and 5 have machines of others, too.
func TestAnAccountWhoseAnswersAlternateMovesSlotsRarely(t *testing.T) {
	s := twoReplicas(t, 4, serving(member.Serving))
	moves, before := 0, s.assignee(0)
	for range 24 * 60 {
		if before == "r-1" {
			s.step(Compared{asked(true)})
			s.otherReports(failing())
		} else {
			s.step(Compared{failing()})
			s.otherReports(asked(true))
		}
		s.follow(time.Minute)
		if now := s.assignee(0); now != before {
			moves, before = moves+1, now
		}
	}
	if moves < 2 || moves > 11 {
		t.Errorf("the slot has moved %d times in a day, want some times, and at most 11", moves)
	}
}

// The leader alone finds what belongs to no Machine at an account. It resigns when the account
// answers another session, or another one is fit and it is not, each time after twice as long.
func TestLeaderThatIsSurpassedResigns(t *testing.T) {
	for name, test := range map[string]struct {
		ours, others member.Accounts
		want         bool
	}{
		"others reach it":                {failing(), asked(true), true},
		"it is away for all":             {failing(), failing(), false},
		"others have not tried it":       {failing(), asked(false), false},
		"others do not reach it":         {asked(true), failing(), false},
		"we reach it, and others do too": {asked(true), asked(true), false},
	} {
		t.Run(name, func(t *testing.T) {
			s := twoReplicas(t, 4, serving(member.Serving))
			s.run(30 * time.Second)
			s.step(Compared{test.ours})
			s.otherReports(test.others)
			s.follow(50 * time.Second)
			if !s.replica.MayLead(at(s.now)) {
				t.Fatal("it resigns too early")
			}
			s.follow(20 * time.Second)
			if resigned := !s.replica.MayLead(at(s.now)); resigned != test.want {
				t.Fatalf("it has resigned: %t, want %t", resigned, test.want)
			}
			s.step(Deposed{})
			s.follow(time.Minute)
			if !s.replica.MayLead(at(s.now)) {
				t.Error("it is no candidate again after a minute")
			}
		})
	}
	for _, service := range []member.Service{member.Serving, member.Failing, member.Untried} {
		t.Run("it is unfit and another session is "+string(service), func(t *testing.T) {
			s := twoReplicas(t, 4, serving(service))
			s.step(Watched{Broken: map[string]string{DefaultTarget: "Nodes are not delivered"}})
			s.follow(50 * time.Second)
			if !s.replica.MayLead(at(s.now)) {
				t.Fatal("it resigns too early")
			}
			s.follow(20 * time.Second)
			if resigned := !s.replica.MayLead(at(s.now)); resigned != (service != member.Failing) {
				t.Errorf("it has resigned: %t", resigned)
			}
		})
	}
	for name, change := range map[string]func(*coordinationv1.Lease){
		"leaves": func(l *coordinationv1.Lease) {
			heldBy(another)(l)
			member.Annotate(l, v1alpha1.AnnotationLeaving, "true")
		},
		"has ended": heldBy(""),
	} {
		t.Run("it is unfit and another session "+name, func(t *testing.T) {
			s := twoReplicas(t, 4, serving(member.Serving))
			s.live = slices.DeleteFunc(s.live, func(string) bool { return name == "has ended" })
			s.write("fleet-session-r-1", change)
			s.step(Watched{Broken: map[string]string{DefaultTarget: "Nodes are not delivered"}})
			s.follow(70 * time.Second)
			if !s.replica.MayLead(at(s.now)) {
				t.Error("it has resigned")
			}
		})
	}
	t.Run("not for two times that are short", func(t *testing.T) {
		s := twoReplicas(t, 4, serving(member.Serving))
		s.otherReports(asked(true))
		for range 3 {
			s.step(Compared{failing()})
			s.follow(40 * time.Second)
			s.step(Compared{asked(true)})
			s.follow(10 * time.Second)
			if !s.replica.MayLead(at(s.now)) {
				t.Fatal("it has resigned")
			}
		}
	})
	t.Run("after 10 min without, as if for the first time", func(t *testing.T) {
		s := twoReplicas(t, 4, serving(member.Serving))
		s.replica.leader.resignations, s.replica.leader.resigned = 5, at(s.now-s.replica.settings.Assignment.HomeFor)
		s.step(Compared{failing()})
		s.otherReports(asked(true))
		s.follow(70 * time.Second)
		if s.replica.MayLead(at(s.now)) {
			t.Error("it has not resigned after a minute")
		}
	})
	t.Run("less often each time", func(t *testing.T) {
		s := twoReplicas(t, 4, serving(member.Serving))
		s.step(Compared{failing()})
		s.otherReports(asked(true))
		var minutes []int
		for minute, led := 1, true; minute <= 20; minute++ {
			s.follow(time.Minute)
			leads := s.replica.MayLead(at(s.now))
			switch {
			case led && !leads:
				minutes = append(minutes, minute)
				s.step(Deposed{})
			case leads && !led:
				s.step(Elected{})
			}
			led = leads
		}
		if diff := cmp.Diff([]int{2, 5, 10, 19}, minutes); diff != "" {
			t.Errorf("it resigns after these minutes (-want +got):\n%s", diff)
		}
	})
}
