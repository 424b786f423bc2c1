package accounts

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	member "github.com/machine-controller-fleet/machine-controller-fleet/membership"
)

const (
	// FailAfter is for how long an account does not answer before it is tried, and may be failing.
	FailAfter = time.Minute
	// TryTimeout is how long one try may take.
	TryTimeout = 15 * time.Second

	// tryEvery is the time between two tries of an account while slots may move; it doubles with each
	// failure, up to tryRarely, which is the time where no slot needs the account.
	tryEvery, tryRarely = 30 * time.Second, 5 * time.Minute
	// freshFor is for how long after a try an account counts as reached while slots may move: the time
	// to the end of the next try.
	freshFor = 50 * time.Second
	// forgetAfter and forgetFailingAfter are after what time without evidence an account is forgotten:
	// before it fails, and later.
	forgetAfter, forgetFailingAfter = 10 * time.Minute, time.Hour

	// mostSuspects bounds the accounts that are remembered, mostOfNamespace those of one namespace.
	// Where namespaces have more together, each has an equal share.
	mostSuspects, mostOfNamespace = 1024, 64
	// mostQuestions bounds the accounts of others that are tried.
	mostQuestions = 128
	// reportedOfNamespace is how many accounts of one namespace are reported at a time. Those that are
	// not have their turn later.
	reportedOfNamespace = 2
	turn                = 2 * time.Minute
	// driverNamespaces is in how many namespaces accounts of a driver have to fail, while none
	// answers, for the driver to be failing.
	driverNamespaces = 4
)

// Use is an account as a class uses it.
type Use struct {
	// Key identifies the account, as namespace/text. Provider names its driver.
	Key, Provider string
	// Class is the MachineClass, as namespace/name.
	Class string
}

func (u Use) namespace() string { return namespaceOf(u.Key) }

// namespaceOf returns the namespace of the key of an account, and the key of a driver as it is.
func namespaceOf(key string) string {
	namespace, _, _ := strings.Cut(key, "/")
	return namespace
}

// DriverKey returns the key of a whole driver. It differs from those of accounts: no namespace has
// a blank.
func DriverKey(provider string) string { return "driver " + provider }

// Try is an account to be tried with a class.
type Try struct {
	Key, Class string
	// own is true if it is one that does not answer this replica, and not one of others' reports.
	own bool
}

// attempts records the tries of an account.
type attempts struct {
	running  bool
	ended    time.Time // of the last one
	failures int       // since the last one that was answered
	reached  time.Time // when it was last answered by its account; zero if the last one was not
}

func (a *attempts) note(e Evidence, now time.Time) {
	a.running, a.ended, a.reached = false, now, time.Time{}
	a.failures++
	if e == Works {
		a.failures, a.reached = 0, now
	}
}

// isDue reports whether a try is due. urgent is true if slots may move by its result.
func (a *attempts) isDue(urgent bool, now time.Time) bool {
	wait := tryEvery << min(max(a.failures-1, 0), 5)
	if !urgent && a.failures == 0 {
		wait = tryRarely
	}
	return !a.running && now.Sub(a.ended) >= min(wait, tryRarely)
}

// suspect is an account whose calls get no answer.
type suspect struct {
	Use
	attempts

	since   time.Time // of the begin of the first call without an answer
	last    time.Time // when a call or a try last got none
	class   string    // of the last call
	failing bool
}

// question is an account of others' reports.
type question struct {
	attempts

	urgent bool // there are slots that need it
}

// Tracker records what one replica knows of accounts. New returns one. It is not safe for
// concurrent use.
type Tracker struct {
	suspects  map[string]*suspect
	questions map[Try]*question
	answered  map[string]time.Time // when an account of a driver last answered, by provider
	// confirmed are the accounts that answer others, as they report. classes are those that failing
	// drivers were last reported with.
	confirmed map[string]bool
	classes   map[string]string
}

// New returns a Tracker that knows nothing.
func New() *Tracker {
	return &Tracker{
		suspects: map[string]*suspect{}, questions: map[Try]*question{}, answered: map[string]time.Time{}, classes: map[string]string{},
	}
}

// Called records a call for a machine, which began at a time and ended now.
func (t *Tracker) Called(use Use, e Evidence, began, now time.Time) {
	switch e {
	case Works, Refused:
		t.answer(use, now)
	case Unanswered:
		s := t.suspects[use.Key]
		if s == nil {
			if s = t.suspect(use, now); s == nil {
				return
			}
			s.since = began
		}
		if s.last = now; s.failing {
			s.class = use.Class
		} else {
			s.Use, s.class = use, use.Class
		}
	case Nothing:
	}
}

// answer records that an account has answered. Others of its driver are tried soon: the driver may
// have been the reason.
func (t *Tracker) answer(use Use, now time.Time) {
	if _, failed := t.suspects[use.Key]; failed {
		delete(t.suspects, use.Key)
		for _, s := range t.suspects {
			if s.Provider == use.Provider {
				s.failures = 0 // and its place in the order stays
			}
		}
	}
	t.answered[use.Provider] = now
}

// suspect returns a new suspect; nil if its namespace has its share already.
func (t *Tracker) suspect(use Use, now time.Time) *suspect {
	maps.DeleteFunc(t.suspects, func(_ string, s *suspect) bool { return s.isOver(now) })
	has := map[string]int{}
	for _, s := range t.suspects {
		has[s.namespace()]++
	}
	of := has[use.namespace()]
	if of >= mostOfNamespace {
		return nil
	}
	if len(t.suspects) >= mostSuspects {
		last := t.last(has)
		if has[last.namespace()] <= of+1 {
			return nil
		}
		delete(t.suspects, last.Key)
	}
	s := &suspect{Use: use}
	t.suspects[use.Key] = s
	return s
}

// last returns the suspect that is forgotten first for one of another namespace: the latest of a
// namespace that has the most.
func (t *Tracker) last(has map[string]int) *suspect {
	return slices.MaxFunc(slices.Collect(maps.Values(t.suspects)), func(a, b *suspect) int {
		return cmp.Or(cmp.Compare(has[a.namespace()], has[b.namespace()]), a.since.Compare(b.since), cmp.Compare(a.Key, b.Key))
	})
}

func (s *suspect) isOver(now time.Time) bool {
	if s.failing {
		return now.Sub(s.last) > forgetFailingAfter
	}
	return now.Sub(s.last) > forgetAfter
}

// Heard records what the other sessions report.
func (t *Tracker) Heard(reports []member.Accounts) {
	asked := map[Try]*question{}
	t.confirmed = map[string]bool{}
	for _, report := range reports {
		for _, of := range report.Asked {
			t.confirmed[of.Key] = t.confirmed[of.Key] || of.Reached
		}
		for _, failing := range report.Failing {
			try := Try{Key: failing.Key, Class: failing.Class}
			q := asked[try]
			if q == nil {
				if len(asked) >= mostQuestions {
					continue
				}
				if q = t.questions[try]; q == nil {
					q = &question{}
				}
				asked[try], q.urgent = q, false
			}
			q.urgent = q.urgent || !failing.Slots.IsEmpty()
		}
	}
	t.questions = asked
}

// Due returns at most a number of tries that are due, and marks them as running. Each namespace has
// one before any has two at a time, those first whose last try is longest ago. The caller reports
// the result of each.
func (t *Tracker) Due(most int, now time.Time) (due []Try) {
	for key, s := range t.suspects {
		switch {
		case s.isOver(now) && !s.running:
			delete(t.suspects, key)
		case now.Sub(s.since) >= FailAfter && s.isDue(true, now):
			due = append(due, Try{key, s.Class, true})
		}
	}
	for try, q := range t.questions {
		if s := t.suspects[try.Key]; (s == nil || !s.failing) && q.isDue(q.urgent, now) {
			due = append(due, try)
		}
	}
	due = t.inTurn(due)
	due = due[:min(len(due), most)]
	for _, try := range due {
		t.of(try).running = true
	}
	return due
}

// inTurn orders tries.
func (t *Tracker) inTurn(due []Try) []Try {
	slices.SortFunc(due, func(a, b Try) int {
		return cmp.Or(t.of(a).ended.Compare(t.of(b).ended), cmp.Compare(a.Key, b.Key), cmp.Compare(a.Class, b.Class))
	})
	tries, last := map[string]int{}, map[string]time.Time{} // by namespace: those that run, and when the last one ended
	note := func(key string, a *attempts) {
		of := namespaceOf(key)
		if a.running {
			tries[of]++
		}
		if a.ended.After(last[of]) {
			last[of] = a.ended
		}
	}
	for key, s := range t.suspects {
		note(key, &s.attempts)
	}
	for try, q := range t.questions {
		note(try.Key, &q.attempts)
	}
	rank := map[Try]int{}
	for _, try := range due {
		rank[try] = tries[namespaceOf(try.Key)]
		tries[namespaceOf(try.Key)]++
	}
	slices.SortStableFunc(due, func(a, b Try) int {
		return cmp.Or(cmp.Compare(rank[a], rank[b]), last[namespaceOf(a.Key)].Compare(last[namespaceOf(b.Key)]))
	})
	return due
}

// of returns the attempts of a try; nil if it is forgotten.
func (t *Tracker) of(try Try) *attempts {
	if try.own {
		if s := t.suspects[try.Key]; s != nil {
			return &s.attempts
		}
		return nil
	}
	if q := t.questions[try]; q != nil {
		return &q.attempts
	}
	return nil
}

// Tried records how a try has ended.
func (t *Tracker) Tried(try Try, e Evidence, now time.Time) {
	of := t.of(try)
	if of == nil {
		return
	}
	of.note(e, now)
	if !try.own {
		return
	}
	s := t.suspects[try.Key]
	switch e {
	case Works, Refused:
		t.answer(s.Use, now)
	case Unanswered:
		s.failing, s.last = true, now
	case Nothing: // its class may have been deleted
		s.Class = s.class
	}
}

// Report returns what to report, without slots.
func (t *Tracker) Report(now time.Time) member.Accounts {
	turns := int(now.Unix() / int64(turn/time.Second))
	report := member.Accounts{Failing: t.failing(turns)}
	reached := map[string]bool{}
	for try, q := range t.questions {
		fresh := freshFor
		if !q.urgent {
			fresh += tryRarely
		}
		if s := t.suspects[try.Key]; s == nil || !s.failing {
			reached[try.Key] = reached[try.Key] || now.Sub(q.reached) < fresh // the zero time is long ago
		}
	}
	for _, key := range some(slices.Sorted(maps.Keys(reached)), member.MostAsked, turns) {
		report.Asked = append(report.Asked, member.Account{Key: key, Reached: reached[key]})
	}
	return report
}

// failing returns the failing accounts to report. A driver that answers no account stands for all
// of them.
func (t *Tracker) failing(turns int) (report []member.Account) {
	ofDriver, ofNamespace := map[string][]*suspect{}, map[string][]*suspect{}
	for _, key := range slices.Sorted(maps.Keys(t.suspects)) {
		if s := t.suspects[key]; s.failing {
			ofDriver[s.Provider] = append(ofDriver[s.Provider], s)
		}
	}
	for _, provider := range slices.Sorted(maps.Keys(ofDriver)) {
		of := ofDriver[provider]
		if t.isDriver(provider, of) {
			report = append(report, member.Account{Key: DriverKey(provider), Class: t.classOf(provider, of, turns)})
			continue
		}
		for _, s := range of {
			ofNamespace[s.namespace()] = append(ofNamespace[s.namespace()], s)
		}
	}
	for _, namespace := range slices.Sorted(maps.Keys(ofNamespace)) {
		var of []member.Account
		for _, s := range ofNamespace[namespace] {
			of = append(of, member.Account{Key: s.Key, Class: s.Class})
		}
		report = append(report, t.first(of, reportedOfNamespace, turns)...)
	}
	return t.first(report, member.MostFailing, turns)
}

// first returns at most a number of accounts: those that answer others, which are to be kept away
// from here, and then each in its turn. Half of the places are for those that others have not been
// asked for: without, the first ones would have all places permanently.
func (t *Tracker) first(all []member.Account, most, turns int) []member.Account {
	var kept, rest []member.Account
	for _, one := range all {
		if t.confirmed[one.Key] {
			kept = append(kept, one)
		} else {
			rest = append(rest, one)
		}
	}
	kept = some(kept, max(most-len(rest), (most+1)/2), turns)
	return append(kept, some(rest, most-len(kept), turns)...)
}

// classOf returns the class with which others try a failing driver: the same one while it answers
// them, and else each in its turn, since an account may be away for all.
func (t *Tracker) classOf(provider string, failing []*suspect, turns int) string {
	class := t.classes[provider]
	if isFailing := slices.ContainsFunc(failing, func(s *suspect) bool { return s.Class == class }); !isFailing ||
		!t.confirmed[DriverKey(provider)] {
		class = failing[turns%len(failing)].Class
	}
	t.classes[provider] = class
	return class
}

// isDriver reports whether failing accounts of a driver show that the driver itself does not
// answer.
func (t *Tracker) isDriver(provider string, failing []*suspect) bool {
	namespaces, first := map[string]bool{}, failing[0].since
	for _, s := range failing {
		namespaces[s.namespace()] = true
		if s.since.Before(first) {
			first = s.since
		}
	}
	return len(namespaces) >= driverNamespaces && !t.answered[provider].After(first)
}

// some returns at most a number of items: others at each turn, until all have had one.
func some[T any](all []T, most, turns int) []T {
	if len(all) <= most {
		return all
	}
	start := turns * most % len(all)
	return append(slices.Clone(all[start:]), all[:start]...)[:most]
}
