package check

import (
	"fmt"
	"slices"
	"time"
)

// Gone is the desired number of a deleted root.
const Gone = -1

// Wait is the time from a change of a root until it has its desired machines.
type Wait struct {
	// Root is its name, Want the desired number of its machines, or Gone.
	Root string
	Want int
	// From is the time of the change, To that at which it was complete; zero: the root still waits.
	From, To time.Time
	// Note describes the root as it was when the bound had passed.
	Note string
}

// Took returns how long the root has waited.
func (w Wait) Took(now time.Time) time.Duration {
	if w.To.IsZero() {
		return now.Sub(w.From)
	}
	return w.To.Sub(w.From)
}

// Describe describes the wait as text.
func (w Wait) Describe(now time.Time) string {
	want, state := fmt.Sprintf("%d machines", w.Want), "served now"
	if w.Want == Gone {
		want = "its end"
	}
	if w.To.IsZero() {
		state = "waiting still"
	}
	return fmt.Sprintf("%s waited %s for %s since %s, %s; %s",
		w.Root, w.Took(now).Round(100*time.Millisecond), want, w.From.Format("15:04:05.0"), state, w.Note)
}

// Ledger records how long roots wait to be served. Waits that are longer than Bound are late. A
// root that changes while it waits has waited since its first change.
type Ledger struct {
	Bound time.Duration

	open map[string]*Wait
	done []Wait
}

// Changed records another desired number of machines of a root, or Gone.
func (l *Ledger) Changed(root string, want int, now time.Time) {
	if l.open == nil {
		l.open = map[string]*Wait{}
	}
	if w := l.open[root]; w != nil {
		w.Want = want
		return
	}
	l.open[root] = &Wait{Root: root, Want: want, From: now}
}

// Served records that a root has its desired machines.
func (l *Ledger) Served(root string, now time.Time) {
	if w := l.open[root]; w != nil {
		w.To = now
		l.done = append(l.done, *w)
		delete(l.open, root)
	}
}

// Waiting returns the roots that wait, those that have waited longest first.
func (l *Ledger) Waiting() []Wait {
	waits := make([]Wait, 0, len(l.open))
	for _, w := range l.open {
		waits = append(waits, *w)
	}
	slices.SortFunc(waits, func(a, b Wait) int { return a.From.Compare(b.From) })
	return waits
}

// Note describes a root whose bound has passed. The first note of a wait stays.
func (l *Ledger) Note(root, note string) {
	if w := l.open[root]; w != nil && w.Note == "" {
		w.Note = note
	}
}

// Overdue returns the waits that are longer than the bound and have no note.
func (l *Ledger) Overdue(now time.Time) []Wait {
	return slices.DeleteFunc(l.Waiting(), func(w Wait) bool { return w.Note != "" || w.Took(now) <= l.Bound })
}

// Late returns the waits that were or are longer than the bound, in the order of their changes.
func (l *Ledger) Late(now time.Time) []Wait {
	late := slices.DeleteFunc(append(slices.Clone(l.done), l.Waiting()...), func(w Wait) bool { return w.Took(now) <= l.Bound })
	slices.SortFunc(late, func(a, b Wait) int { return a.From.Compare(b.From) })
	return late
}

// Summary describes all waits in one line.
func (l *Ledger) Summary(now time.Time) string {
	took := make([]time.Duration, 0, len(l.done))
	for _, w := range l.done {
		took = append(took, w.Took(now))
	}
	slices.Sort(took)
	at := func(share float64) time.Duration {
		if len(took) == 0 {
			return 0
		}
		return took[min(int(share*float64(len(took))), len(took)-1)].Round(100 * time.Millisecond)
	}
	return fmt.Sprintf(
		"%d changes of roots were served (half within %s, 95 %% within %s, the longest took %s), %d roots wait, %d waited longer than %s",
		len(took), at(0.5), at(0.95), at(1), len(l.open), len(l.Late(now)), l.Bound,
	)
}
