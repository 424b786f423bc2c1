package reach

import "time"

// Settings are the durations of the checks.
type Settings struct {
	// Timeout is how long a server may not answer before it is away.
	Timeout time.Duration
	// Period is the time between two checks of a server that answers.
	Period time.Duration
}

// shortest is the minimum time between two checks: a Timeout or Period of 0 must not cause a loop.
const shortest = time.Second

// Every is the time between two checks of a server that does not answer, and for how long an answer
// is awaited.
func (s Settings) Every() time.Duration { return max(s.Timeout/5, shortest) }

// State contains what was observed of one server. The zero value is that of a process that has not
// checked it.
type State struct {
	answered time.Time // when the last check began that was answered
	failing  time.Time // when the first check began that was not answered since; zero while the server answers
	away     bool
	fact     Fact
}

// Fact contains what decisions need of a server. The zero value means that it is not checked: it
// always was there.
type Fact struct {
	// Away reports whether the server is away.
	Away bool
	// From is when it was last there before the last outage, and Back when it was there again; Back is
	// zero during the first outage, and before From during a later one. Both are zero before the first
	// outage.
	From, Back time.Time
	// Reached is when this process first reached the server, and the present while it has not.
	Reached time.Time
}

// By returns the fact with its times as another clock shows them, which keeps the zero Time.
func (f Fact) By(clock func(time.Time) time.Time) Fact {
	f.From, f.Back, f.Reached = clock(f.From), clock(f.Back), clock(f.Reached)
	return f
}

// Answered returns the state after a check that began at a time and was answered.
func (s State) Answered(begun time.Time) State {
	if s.away {
		s.fact.Away, s.fact.Back = false, begun
	}
	if s.fact.Reached.IsZero() {
		s.fact.Reached = begun
	}
	s.answered, s.failing, s.away = begun, time.Time{}, false
	return s
}

// Failed returns the state after a check that began at a time and was not answered until now.
func (s State) Failed(begun, now time.Time, settings Settings) State {
	if s.failing.IsZero() {
		s.failing = begun
	}
	if now.Sub(s.failing) < settings.Timeout {
		return s
	}
	s.away = true
	s.fact.Away, s.fact.From = true, s.answered
	if s.answered.IsZero() { // it was away when the process started
		s.fact.From = s.failing
	}
	return s
}

// Fact returns what decisions need to know.
func (s State) Fact() Fact { return s.fact }

// IsFailing reports whether the last check was not answered, and since when.
func (s State) IsFailing() (since time.Time, failing bool) { return s.failing, !s.failing.IsZero() }

// LastAnswer returns when the last check began that was answered; zero when none was.
func (s State) LastAnswer() time.Time { return s.answered }

// Next returns the time until the next check.
func (s State) Next(settings Settings) time.Duration {
	if s.failing.IsZero() {
		return max(settings.Period, settings.Every())
	}
	return settings.Every()
}

// Settle is how long what a server shows is not acted on after it is there again, and after a
// process has first reached it: Nodes report their health again within it. The clocks of machines
// begin anew within half of it.
const Settle = time.Minute

// Both returns what decisions that depend on two servers need to know.
func Both(a, b Fact) Fact {
	both := a
	switch {
	case a.Away && b.Away:
		if b.From.Before(a.From) {
			both.From = b.From
		}
	case b.Away, !a.Away && b.Back.After(a.Back):
		both = b
	}
	both.Reached = later(a.Reached, b.Reached)
	return both
}

// Settled returns when what the server shows may be acted on; zero if at any time. It has no
// meaning while the server is away.
func (f Fact) Settled() time.Time {
	if last := later(f.Back, f.Reached); !last.IsZero() {
		return last.Add(Settle)
	}
	return time.Time{}
}

// Extend returns a deadline of something that began at a time, later by what the last outage has
// taken of its time.
func (f Fact) Extend(since, deadline time.Time) time.Time {
	from := later(f.From, since)
	if f.Away || !f.Back.After(from) || !deadline.After(f.From) {
		return deadline
	}
	return deadline.Add(f.Back.Sub(from))
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
