package decide

import (
	"testing"
	"time"
)

func TestSpaced(t *testing.T) {
	const spacing = 4 * time.Minute
	for name, c := range map[string]struct{ wanted, last, want time.Duration }{
		"at once, the first":       {0, -1, 0},
		"at once, after another":   {0, 0, spacing},
		"at once, a while after":   {0, time.Minute, 3 * time.Minute},
		"at once, long after":      {0, time.Hour, 0},
		"later, the first":         {time.Minute, -1, time.Minute},
		"later, after another":     {time.Minute, 2 * time.Minute, 2 * time.Minute},
		"later than the spacing":   {time.Hour, 0, time.Hour},
		"later, long after":        {time.Minute, time.Hour, time.Minute},
		"the spacing is just over": {0, spacing, 0},
	} {
		if got := Spaced(c.wanted, c.last, spacing); got != c.want {
			t.Errorf("%s: in %s, want %s", name, got, c.want)
		}
	}
}

func TestDue(t *testing.T) {
	const age = 13 * time.Minute
	orphan, surplus, other := Suspect{Resource: vm("v", "gone")},
		Suspect{Resource: vm("w", "a"), Surplus: true}, Suspect{Resource: vm("x", "b"), Surplus: true}
	for name, c := range map[string]struct {
		suspects []Suspect
		ages     map[Key]Entry
		want     time.Duration
	}{
		"no suspects":                      {},
		"an orphan waits for usual sweeps": {[]Suspect{orphan}, map[Key]Entry{orphan.Key(): {}}, 0},
		"a new surplus VM":                 {[]Suspect{orphan, surplus}, map[Key]Entry{orphan.Key(): {Age: 600}, surplus.Key(): {}}, age + slack},
		"an older surplus VM":              {[]Suspect{surplus}, map[Key]Entry{surplus.Key(): {Age: 300}}, 8*time.Minute + slack},
		"the oldest counts": {
			[]Suspect{surplus, other}, map[Key]Entry{surplus.Key(): {Age: 60}, other.Key(): {Age: 300}}, 8*time.Minute + slack,
		},
		"one that is nearly old enough":    {[]Suspect{surplus}, map[Key]Entry{surplus.Key(): {Age: 779}}, time.Second + slack},
		"one that is old enough, and left": {[]Suspect{surplus}, map[Key]Entry{surplus.Key(): {Age: 780}}, 0},
		"old enough, and a new one":        {[]Suspect{surplus, other}, map[Key]Entry{surplus.Key(): {Age: 780}, other.Key(): {}}, age + slack},
	} {
		record := Record{Suspects: c.ages}
		if got := Due(c.suspects, record, record, age); got != c.want {
			t.Errorf("%s: in %s, want %s", name, got, c.want)
		}
	}
	young, old := Record{Suspects: map[Key]Entry{surplus.Key(): {Age: 779}}}, Record{Suspects: map[Key]Entry{surplus.Key(): {Age: 790}}}
	if got := Due([]Suspect{surplus}, young, old, age); got != slack {
		t.Errorf("one that became old enough during the sweep: in %s, want %s", got, slack)
	}
}
