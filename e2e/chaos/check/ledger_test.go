package check

import (
	"strings"
	"testing"
	"time"
)

func TestLedger(t *testing.T) {
	begin := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	at := func(seconds int) time.Time { return begin.Add(time.Duration(seconds) * time.Second) }
	names := func(waits []Wait) string {
		var roots []string
		for _, w := range waits {
			roots = append(roots, w.Root)
		}
		return strings.Join(roots, " ")
	}
	want := func(what, got, want string) {
		t.Helper()
		if got != want {
			t.Errorf("%s: got %q, want %q", what, got, want)
		}
	}
	l := &Ledger{Bound: 45 * time.Second}
	l.Changed("quick", 1, at(0))
	l.Changed("slow", 1, at(1))
	l.Changed("never", Gone, at(2))
	l.Served("quick", at(5))
	l.Served("unknown", at(5))
	l.Changed("slow", 2, at(30)) // it waits since its first change
	want("waiting", names(l.Waiting()), "slow never")
	want("overdue at the bound", names(l.Overdue(at(46))), "")
	want("overdue", names(l.Overdue(at(47))), "slow")
	l.Note("slow", "first")
	l.Note("slow", "second")
	want("overdue with a note", names(l.Overdue(at(48))), "never")
	l.Served("slow", at(60))
	want("late", names(l.Late(at(61))), "slow never")
	want("a wait that has ended", l.Late(at(61))[0].Describe(at(99)), "slow waited 59s for 2 machines since 00:00:01.0, served now; first")
	want("a wait", l.Late(at(61))[1].Describe(at(61)), "never waited 59s for its end since 00:00:02.0, waiting still; ")
	if took := l.Late(at(61))[0].Took(at(100)); took != 59*time.Second {
		t.Errorf("slow waited %s, want 59s", took)
	}
	want("summary", l.Summary(at(62)),
		"2 changes of roots were served (half within 59s, 95 % within 59s, the longest took 59s), 1 roots wait, 2 waited longer than 45s")
}
