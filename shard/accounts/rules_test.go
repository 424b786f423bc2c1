package accounts

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	member "github.com/machine-controller-fleet/machine-controller-fleet/membership"
)

var (
	noon         = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	compareTries = cmpopts.EquateComparable(Try{})
)

func TestAttemptsAreDueAfterTime(t *testing.T) {
	for name, test := range map[string]struct {
		attempts
		urgent bool
		after  time.Duration
	}{
		"slots may move":                        {attempts{}, true, 30 * time.Second},
		"slots may move, and one has failed":    {attempts{failures: 1}, true, 30 * time.Second},
		"slots may move, and two have failed":   {attempts{failures: 2}, true, time.Minute},
		"slots may move, and four have failed":  {attempts{failures: 4}, true, 4 * time.Minute},
		"slots may move, and five have failed":  {attempts{failures: 5}, true, 5 * time.Minute},
		"slots may move, and many have failed":  {attempts{failures: 100}, true, 5 * time.Minute},
		"no slots may move":                     {attempts{}, false, 5 * time.Minute},
		"no slots may move, and one has failed": {attempts{failures: 1}, false, 30 * time.Second},
	} {
		a := test.attempts
		a.ended = noon
		if before, then := a.isDue(test.urgent, noon.Add(test.after-1)), a.isDue(test.urgent, noon.Add(test.after)); before || !then {
			t.Errorf("%s: due before %v: %v, and then: %v; want no, and yes", name, test.after, before, then)
		}
		if a.running = true; a.isDue(test.urgent, noon.Add(time.Hour)) {
			t.Errorf("%s: due while one runs", name)
		}
	}
}

func TestSuspectsAreOverAfterTimeWithoutEvidence(t *testing.T) {
	for failing, after := range map[bool]time.Duration{false: 10 * time.Minute, true: time.Hour} {
		s := suspect{failing: failing, last: noon}
		if at, then := s.isOver(noon.Add(after)), s.isOver(noon.Add(after+1)); at || !then {
			t.Errorf("failing %v: over at %v: %v, and then: %v; want no, and yes", failing, after, at, then)
		}
	}
}

// A try may end after its account would have been forgotten.
func TestASuspectIsNotForgottenWhileItIsTried(t *testing.T) {
	s := newStory(t)
	s.call(use("a"), Unanswered)
	s.now = s.now.Add(forgetAfter)
	due := s.Due(1, s.now)
	if s.now = s.now.Add(TryTimeout); len(due) != 1 || len(s.Due(1, s.now)) != 0 {
		t.Fatalf("want one try once, got %v first", due)
	}
	s.Tried(due[0], Unanswered, s.now)
	s.expect("after the try", failingA)
}

func TestTheEndOfATryThatIsForgottenIsIgnored(t *testing.T) {
	s := newStory(t)
	s.Heard(asked(use("a"), 1))
	due := s.Due(1, s.now)
	s.Heard(nil)
	s.Tried(due[0], Works, s.now)
	s.expect("no replica asks any more", nothing)
}

// Others compare with the class that is reported. Before there is a report, the class of the last
// call is the best one.
func TestClassOfTries(t *testing.T) {
	with := func(class string) Use { return Use{Key: "a/1", Provider: "p", Class: class} }
	wantTry := func(s *story, class string) {
		t.Helper()
		s.now = s.now.Add(tryRarely)
		if diff := cmp.Diff([]Try{{"a/1", class, true}}, s.Due(1, s.now), compareTries); diff != "" {
			t.Errorf("tries (-want +got):\n%s", diff)
		}
	}
	s := newStory(t)
	s.call(with("a/first"), Unanswered)
	s.call(with("a/second"), Unanswered)
	wantTry(s, "a/second")
	s.Tried(Try{"a/1", "a/second", true}, Nothing, s.now)
	wantTry(s, "a/second")
	s.Tried(Try{"a/1", "a/second", true}, Unanswered, s.now)
	s.call(with("a/third"), Unanswered)
	wantTry(s, "a/second")
	s.Tried(Try{"a/1", "a/second", true}, Nothing, s.now) // it does not exist any more
	wantTry(s, "a/third")
}

// When an account answers again, its driver may have been the reason: others of that driver are
// tried at once.
func TestOnlyARecoveryHasOthersTried(t *testing.T) {
	for name, test := range map[string]struct {
		answers Use
		want    int
	}{
		"an account that had failed":                   {use("a"), 1},
		"an account that had not failed":               {use("c"), 0},
		"an account of another driver that had failed": {Use{Key: "q/1", Provider: "q", Class: "q/small"}, 0},
	} {
		s := newStory(t)
		for _, u := range []Use{use("a"), use("b"), {Key: "q/1", Provider: "q", Class: "q/small"}} {
			s.call(u, Unanswered)
		}
		s.run(time.Hour, always(Unanswered))
		s.suspects["b/1"].ended = s.now
		s.now = s.now.Add(tryEvery)
		s.call(test.answers, Works)
		tries := 0
		for _, try := range s.Due(10, s.now) {
			if try.Key == "b/1" {
				tries++
			}
		}
		if tries != test.want {
			t.Errorf("%s answers: %d tries of the other one, want %d", name, tries, test.want)
		}
	}
}

func TestReportsOfOthersAreTakenTogether(t *testing.T) {
	asks := func(slots member.SlotSet) member.Accounts {
		return member.Accounts{Failing: []member.Account{{Key: "a/1", Class: "a/small", Slots: slots}}}
	}
	s := newStory(t)
	s.Heard([]member.Accounts{asks(member.SlotSet{}.With(1)), asks(member.SlotSet{})})
	s.try(always(Works))
	s.Heard([]member.Accounts{asks(member.SlotSet{}.With(1)), asks(member.SlotSet{})})
	s.expect("heard again", member.Accounts{Asked: []member.Account{{Key: "a/1", Reached: true}}})
	s.now = s.now.Add(tryEvery)
	if tries := len(s.Due(10, s.now)); tries != 1 {
		t.Errorf("%d tries after 30 s where one of two reports names slots, want 1", tries)
	}
	s.Heard([]member.Accounts{{Asked: []member.Account{{Key: "b/1", Reached: true}}}, {Asked: []member.Account{{Key: "b/1"}}}})
	if !s.confirmed["b/1"] {
		t.Error("an account that answers one of two others does not count as confirmed")
	}
}

func TestQuestionsAreBounded(t *testing.T) {
	s, report := newStory(t), member.Accounts{}
	for i := range 2 * mostQuestions {
		report.Failing = append(report.Failing, member.Account{Key: fmt.Sprint("a/", i), Class: "a/small"})
	}
	if s.Heard([]member.Accounts{report}); len(s.questions) != mostQuestions {
		t.Errorf("%d accounts of others are remembered, want %d", len(s.questions), mostQuestions)
	}
}

// An account that fails here is tried for the report of this replica. That others ask for it adds
// no try and no answer.
func TestAQuestionForASuspect(t *testing.T) {
	s := newStory(t)
	s.call(use("a"), Unanswered)
	s.Heard(asked(use("a"), 1))
	question := Try{"a/1", "a/small", false}
	if diff := cmp.Diff([]Try{question}, s.Due(10, s.now), compareTries); diff != "" {
		t.Errorf("tries before it fails (-want +got):\n%s", diff)
	}
	s.Tried(question, Works, s.now)
	s.expect("before it fails", member.Accounts{Asked: []member.Account{{Key: "a/1", Reached: true}}})
	s.suspects["a/1"].failing = true
	s.now = s.now.Add(tryRarely)
	if diff := cmp.Diff([]Try{{"a/1", "a/small", true}}, s.Due(10, s.now), compareTries); diff != "" {
		t.Errorf("tries when it fails (-want +got):\n%s", diff)
	}
	s.expect("when it fails", failingA)
}

func TestAnAccountIsReached(t *testing.T) {
	reached := func(s *story) bool { return s.Report(s.now).Asked[0].Reached }
	s := newStory(t)
	s.Heard(asked(use("a"), 1))
	s.try(always(Works))
	if s.now = s.now.Add(freshFor - 1); !reached(s) {
		t.Error("not reached less than 50 s after a try that was answered")
	}
	if s.now = s.now.Add(1); reached(s) {
		t.Error("reached 50 s after a try that was answered")
	}
	s.try(always(Works))
	s.now = s.now.Add(tryEvery)
	if s.try(always(Refused)); reached(s) {
		t.Error("reached after a try that was refused")
	}
	many := member.Accounts{}
	for i := range 8 {
		many.Failing = append(many.Failing, member.Account{Key: "a/1", Class: fmt.Sprint("a/", i)})
	}
	s.Heard([]member.Accounts{many})
	s.try(func(try Try) Evidence { return map[bool]Evidence{true: Works, false: Refused}[try.Class == "a/3"] })
	for range 100 { // the order of maps is random
		if !reached(s) {
			t.Fatal("not reached where one of eight classes is answered")
		}
	}
}

func TestTriesAreInTurn(t *testing.T) {
	type one struct {
		key     string
		ended   time.Duration // before noon
		running bool
	}
	const due = time.Hour
	for name, test := range map[string]struct {
		own, others []one
		most        int
		want        []string
	}{
		"longest ago first": {
			[]one{{"a/1", due, false}, {"a/2", due + 5, false}, {"a/3", due + 3, false}, {"a/4", due + 4, false}, {"a/5", due + 1, false}},
			nil, 9,
			[]string{"a/2", "a/4", "a/3", "a/5", "a/1"},
		},
		"not more than requested": {
			[]one{{"a/1", due, false}, {"b/1", due + 1, false}, {"c/1", due + 2, false}}, nil, 2, []string{"c/1", "b/1"},
		},
		"none": {[]one{{"a/1", due, false}}, nil, 0, []string{}},
		"each namespace one, before one has two": {
			[]one{{"a/1", due + 9, false}, {"a/2", due + 9, false}, {"b/1", due, false}}, nil, 9, []string{"a/1", "b/1", "a/2"},
		},
		"one runs": {
			[]one{{"a/1", due + 9, false}, {"a/2", due + 9, true}, {"b/1", due, false}}, nil, 9, []string{"b/1", "a/1"},
		},
		"one of another's report runs": {
			[]one{{"a/1", due + 9, false}, {"b/1", due, false}}, []one{{"a/2", due + 9, true}}, 9, []string{"b/1", "a/1"},
		},
		"others are not due": {
			[]one{{"a/1", due + 9, false}, {"a/2", 2, false}, {"a/3", 2, false}, {"b/1", due, false}, {"b/2", 1, false}},
			nil, 9,
			[]string{"a/1", "b/1"},
		},
		"the namespace that was tried longest ago": {
			[]one{{"a/1", due + 9, false}, {"a/2", 1, false}, {"b/1", due, false}}, nil, 9, []string{"b/1", "a/1"},
		},
		"another's report was tried a short ago": {
			[]one{{"a/1", due + 9, false}, {"b/1", due, false}}, []one{{"a/2", 1, false}}, 9, []string{"b/1", "a/1"},
		},
		"of those that were never tried, by letter": {
			[]one{{"a/3", due, false}, {"a/1", due, false}, {"a/4", due, false}, {"a/2", due, false}, {"a/5", due, false}},
			nil, 9,
			[]string{"a/1", "a/2", "a/3", "a/4", "a/5"},
		},
	} {
		tracker := New()
		of := func(o one) attempts { return attempts{ended: noon.Add(-o.ended), running: o.running} }
		for _, o := range test.own {
			tracker.suspects[o.key] = &suspect{Use: Use{Key: o.key}, attempts: of(o), last: noon, since: noon.Add(-FailAfter)}
		}
		for _, o := range test.others {
			tracker.questions[Try{Key: o.key}] = &question{attempts: of(o), urgent: true}
		}
		got := []string{}
		for _, try := range tracker.Due(test.most, noon) {
			got = append(got, try.Key)
		}
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		if again := tracker.Due(9, noon); len(again)+len(got) > len(test.own) || test.most == 9 && len(again) > 0 {
			t.Errorf("%s: tries that run are due again: %v", name, again)
		}
	}
}

// Half of the places are for accounts that others have not been asked for; those that one side does
// not need are the other's.
func TestPlacesOfAReport(t *testing.T) {
	for _, test := range []struct{ confirmed, others, most, wantConfirmed, wantOthers int }{
		{10, 10, 8, 4, 4}, {10, 1, 8, 7, 1}, {1, 10, 8, 1, 7}, {0, 10, 8, 0, 8}, {10, 0, 8, 8, 0}, {3, 3, 1, 1, 0}, {2, 2, 8, 2, 2},
	} {
		tracker, all := New(), []member.Account{}
		tracker.confirmed = map[string]bool{}
		for i := range test.confirmed {
			all = append(all, member.Account{Key: fmt.Sprint("confirmed/", i)})
			tracker.confirmed[all[i].Key] = true
		}
		for i := range test.others {
			all = append(all, member.Account{Key: fmt.Sprint("other/", i)})
		}
		confirmed, others := 0, 0
		for _, one := range tracker.first(all, test.most, 1) {
			if tracker.confirmed[one.Key] {
				confirmed++
			} else {
				others++
			}
		}
		if confirmed != test.wantConfirmed || others != test.wantOthers {
			t.Errorf("%+v: got %d and %d", test, confirmed, others)
		}
	}
}

func TestTheClassOfAFailingDriverIsOneOfThoseThatFail(t *testing.T) {
	tracker := New()
	tracker.confirmed, tracker.classes["p"] = map[string]bool{DriverKey("p"): true}, "a/gone"
	if class := tracker.classOf("p", []*suspect{{Use: use("a")}, {Use: use("b")}}, 1); class != "b/small" {
		t.Errorf("the driver is reported with class %s, which does not fail any more, want b/small", class)
	}
}

func TestADriverFailsWhenNoAccountOfItHasAnsweredSinceTheFirstFailed(t *testing.T) {
	for name, test := range map[string]struct {
		namespaces int
		answered   time.Duration // after noon
		want       bool
	}{
		"none has answered since":    {4, time.Minute, true},
		"one has answered since":     {4, time.Minute + 1, false},
		"accounts of few namespaces": {3, time.Minute, false},
	} {
		tracker, failing := New(), []*suspect{}
		for i, since := range []time.Duration{2 * time.Minute, time.Minute, 3 * time.Minute, 4 * time.Minute}[:test.namespaces] {
			failing = append(failing, &suspect{Use: use(fmt.Sprint("n", i)), since: noon.Add(since)})
		}
		tracker.answered["p"] = noon.Add(test.answered)
		if got := tracker.isDriver("p", failing); got != test.want {
			t.Errorf("%s: the driver fails: %v, want %v", name, got, test.want)
		}
	}
}
