package accounts

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/machine-controller-fleet/machine-controller-fleet/driver"
	member "github.com/machine-controller-fleet/machine-controller-fleet/membership"
)

func TestWhatCallsShow(t *testing.T) {
	for _, code := range driver.Codes() {
		want := Nothing
		switch code { //nolint:exhaustive // the others show nothing
		case driver.OK, driver.NotFound, driver.AlreadyExists, driver.OutOfRange, driver.ResourceExhausted, driver.Uninitialized:
			want = Works
		case driver.Unauthenticated, driver.PermissionDenied:
			want = Refused
		case driver.Unavailable, driver.DeadlineExceeded, driver.Internal, driver.Unknown:
			want = Unanswered
		}
		if got := EvidenceOf(&driver.Error{Code: code}); got != want {
			t.Errorf("%s shows %d, want %d", code, got, want)
		}
	}
	if EvidenceOf(nil) != Works || EvidenceOf(errors.New("connection reset")) != Unanswered {
		t.Error("want success to show that the account works, and an error without a code that it does not answer")
	}
	notSent := driver.Throttledf(driver.OpStatus, 0, "later")
	notSent.Pending = true
	if EvidenceOf(driver.Throttledf(driver.OpStatus, 0, "later")) != Refused || EvidenceOf(notSent) != Nothing {
		t.Error("want a cloud that throttles to have answered, unless the request was not sent")
	}
	if EvidenceOf(&driver.Error{Code: driver.Unavailable, RetryAfter: time.Second}) != Unanswered {
		t.Error("want a request to wait to be no answer: a proxy can send it")
	}
}

// story is a Tracker and its time.
type story struct {
	*testing.T
	*Tracker

	now time.Time
}

func newStory(t *testing.T) *story {
	t.Helper()
	return &story{T: t, Tracker: New(), now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}
}

func use(namespace string) Use {
	return Use{Key: namespace + "/1", Provider: "p", Class: namespace + "/small"}
}

// call records a call that has taken a second.
func (s *story) call(u Use, e Evidence) {
	s.now = s.now.Add(time.Second)
	s.Called(u, e, s.now.Add(-time.Second), s.now)
}

// try has each try that is due end at once, as answer says.
func (s *story) try(answer func(Try) Evidence) (tries int) {
	due := s.Due(100, s.now)
	for _, one := range due {
		s.Tried(one, answer(one), s.now)
	}
	return len(due)
}

func always(e Evidence) func(Try) Evidence { return func(Try) Evidence { return e } }

// run lets time pass, with tries that end at once, and returns how many there were.
func (s *story) run(d time.Duration, answer func(Try) Evidence) (tries int) {
	for end := s.now.Add(d); s.now.Before(end); s.now = s.now.Add(time.Second) {
		tries += s.try(answer)
	}
	return tries
}

func (s *story) expect(when string, want member.Accounts) {
	s.Helper()
	if diff := cmp.Diff(want, s.Report(s.now)); diff != "" {
		s.Errorf("%s: report (-want +got):\n%s", when, diff)
	}
}

var (
	failingA = member.Accounts{Failing: []member.Account{{Key: "a/1", Class: "a/small"}}}
	nothing  = member.Accounts{}
)

func TestAnAccountFailsWhenCallsAndATryGetNoAnswerForAMinute(t *testing.T) {
	for name, test := range map[string]struct {
		calls []Evidence // 20 s apart
		try   Evidence
		want  member.Accounts
	}{
		"no answer":                       {[]Evidence{Unanswered, Unanswered, Unanswered, Unanswered}, Unanswered, failingA},
		"one call alone":                  {[]Evidence{Unanswered, Nothing, Nothing, Nothing}, Unanswered, failingA},
		"the try is answered":             {[]Evidence{Unanswered, Unanswered, Unanswered, Unanswered}, Works, nothing},
		"the try is refused":              {[]Evidence{Unanswered, Unanswered, Unanswered, Unanswered}, Refused, nothing},
		"the try cannot be sent":          {[]Evidence{Unanswered, Unanswered, Unanswered, Unanswered}, Nothing, nothing},
		"one call is answered":            {[]Evidence{Unanswered, Unanswered, Works, Unanswered}, Unanswered, nothing},
		"one call is refused":             {[]Evidence{Unanswered, Unanswered, Refused, Unanswered}, Unanswered, nothing},
		"quota, bad fields, denied calls": {[]Evidence{Works, Nothing, Refused, Nothing}, Unanswered, nothing},
	} {
		s := newStory(t)
		for _, e := range test.calls {
			s.call(use("a"), e)
			s.run(19*time.Second, always(test.try))
		}
		s.expect(name, test.want)
	}
}

func TestAnAccountFailsNotBeforeAMinute(t *testing.T) {
	s := newStory(t)
	s.call(use("a"), Unanswered)
	if tries := s.run(58*time.Second, always(Unanswered)); tries > 0 {
		t.Errorf("%d tries within a minute of the first call", tries)
	}
	s.expect("before", nothing)
	s.run(2*time.Second, always(Unanswered))
	s.expect("after", failingA)
}

func TestAFailingAccountIsReportedUntilItAnswers(t *testing.T) {
	s := newStory(t)
	s.call(use("a"), Unanswered)
	s.run(2*time.Minute, always(Unanswered))
	if tries := s.run(time.Hour, always(Unanswered)); tries < 11 || tries > 15 {
		t.Errorf("%d tries in an hour, want one in 5 min and some more at first", tries)
	}
	s.expect("without calls, as the slots have moved", failingA)
	s.run(6*time.Minute, always(Works))
	s.expect("after a try that was answered", nothing)

	s.call(use("a"), Unanswered)
	s.run(2*time.Minute, always(Unanswered))
	s.expect("again", failingA)
	s.call(use("a"), Works)
	s.expect("after a call that was answered", nothing)

	s.call(use("a"), Unanswered)
	s.run(2*time.Minute, always(Unanswered))
	s.run(2*time.Hour, always(Nothing))
	s.expect("when its class is gone", nothing)
}

// asked is a report of another replica.
func asked(u Use, slots ...int) []member.Accounts {
	var set member.SlotSet
	for _, slot := range slots {
		set = set.With(slot)
	}
	return []member.Accounts{{Failing: []member.Account{{Key: u.Key, Class: u.Class, Slots: set}}}, {}}
}

func TestAccountsOfOthersReportsAreTried(t *testing.T) {
	reached := member.Accounts{Asked: []member.Account{{Key: "a/1", Reached: true}}}
	unreached := member.Accounts{Asked: []member.Account{{Key: "a/1"}}}
	s := newStory(t)
	s.Heard(asked(use("a"), 1))
	s.expect("before the first try", unreached)
	s.try(func(try Try) Evidence {
		if try.Class != "a/small" {
			t.Errorf("it is tried with %q", try.Class)
		}
		return Works
	})
	s.expect("after it", reached)
	if tries := s.run(10*time.Minute, always(Works)); tries < 19 || tries > 21 {
		t.Errorf("%d tries in 10 min while slots may move, want one in 30 s", tries)
	}
	s.run(45*time.Second, always(Refused))
	s.expect("what is refused is not reached", unreached)

	s.Heard(asked(use("a")))
	s.run(10*time.Minute, always(Works))
	if tries := s.run(time.Hour, always(Works)); tries < 11 || tries > 13 {
		t.Errorf("%d tries in an hour in which no slots may move, want one in 5 min", tries)
	}
	s.expect("no slots may move", reached)
	s.Heard(nil)
	s.expect("no replica asks", nothing)
	s.Heard(asked(use("a")))
	s.expect("asked again", unreached)
}

// A replica finds out after a minute that a cloud does not answer; by then no other one still
// reports that it does.
func TestWhatIsAwayForAllIsNotReportedAsReached(t *testing.T) {
	s := newStory(t)
	s.Heard(asked(use("a"), 1))
	s.run(10*time.Minute, always(Works))
	hanging := s.now
	for s.Report(s.now).Asked[0].Reached {
		s.Due(100, s.now) // which get no answer
		s.now = s.now.Add(time.Second)
	}
	if took := s.now.Sub(hanging); took >= FailAfter-2*time.Second {
		t.Errorf("it is reported as reached for %s; others report after %s that it fails", took, FailAfter)
	}
}

func TestADriverFailsWhenAccountsOfManyNamespacesDo(t *testing.T) {
	failing := func(namespaces int) *story {
		s := newStory(t)
		for i := range namespaces {
			s.call(use(fmt.Sprint("n", i)), Unanswered)
		}
		s.run(2*time.Minute, always(Unanswered))
		return s
	}
	few := failing(3)
	if got := few.Report(few.now); len(got.Failing) != 3 || got.Failing[0].Key != "n0/1" {
		t.Errorf("of 3 namespaces: want 3 accounts, got %+v", got)
	}
	s := failing(50)
	before := s.Report(s.now)
	if len(before.Failing) != 1 || before.Failing[0].Key != DriverKey("p") {
		t.Fatalf("of 50 namespaces: want the driver, got %+v", before)
	}
	s.run(2*turn, always(Unanswered))
	if other := s.Report(s.now); other.Failing[0].Class == before.Failing[0].Class {
		t.Errorf("while no replica reaches it: want it reported with another class, got %+v", other)
	}
	s.Heard([]member.Accounts{{Asked: []member.Account{{Key: DriverKey("p"), Reached: true}}}})
	kept := s.Report(s.now)
	s.run(5*turn, always(Unanswered))
	if other := s.Report(s.now); other.Failing[0].Class != kept.Failing[0].Class {
		t.Errorf("while another replica reaches it: want it reported with the same class, got %+v", other)
	}
	s.call(use("another"), Works)
	if got := s.Report(s.now); len(got.Failing) != member.MostFailing || got.Failing[0].Key == DriverKey("p") {
		t.Errorf("one account of it answers: want accounts, got %+v", got)
	}
	s.call(use("n7"), Works)
	if tries := s.try(always(Works)); tries != 49 {
		t.Errorf("one that has failed answers: %d tries, want all 49 others tried at once", tries)
	}
	s.expect("all answer", nothing)
}

// A tenant has many accounts that do not answer.
func TestATenantsAccountsLeaveRoomForOthers(t *testing.T) {
	s := newStory(t)
	for i := range 1000 {
		s.call(Use{Key: fmt.Sprint("hostile/", i), Provider: "p", Class: "hostile/x"}, Unanswered)
	}
	if len(s.suspects) > mostOfNamespace {
		t.Errorf("%d accounts of one namespace are remembered", len(s.suspects))
	}
	s.call(use("a"), Unanswered)
	s.run(2*time.Minute, always(Unanswered))
	seen := map[string]bool{}
	for range mostOfNamespace {
		report := s.Report(s.now)
		if len(report.Failing) != 3 || report.Failing[0].Key != "a/1" {
			t.Fatalf("want that of the other namespace and 2 of the tenant, got %+v", report)
		}
		seen[report.Failing[1].Key] = true
		s.now = s.now.Add(turn)
	}
	if len(seen) < mostOfNamespace/2 {
		t.Errorf("%d accounts had their turn first, want each", len(seen))
	}
	for i := range 2 * mostSuspects {
		s.Called(use(fmt.Sprint("n", i)), Unanswered, s.now, s.now)
	}
	if len(s.suspects) != mostSuspects {
		t.Errorf("%d accounts are remembered", len(s.suspects))
	}
}
