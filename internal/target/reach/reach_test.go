package reach

import (
	"testing"
	"time"
)

var (
	start    = time.Date(2026, 1, 2, 3, 0, 0, 0, time.UTC)
	settings = Settings{Timeout: 30 * time.Second, Period: time.Minute}
)

func at(s int) time.Time { return start.Add(time.Duration(s) * time.Second) }

// A server is away when it has not answered for longer than the timeout, and not before.
func TestServerIsAwayAfterTheTimeout(t *testing.T) {
	type check struct {
		begun, ended int
		answered     bool
	}
	for name, tc := range map[string]struct {
		checks []check
		want   Fact
		next   time.Duration
	}{
		"it answers":      {[]check{{0, 0, true}}, Fact{Reached: at(0)}, time.Minute},
		"one check fails": {[]check{{0, 0, true}, {60, 66, false}}, Fact{Reached: at(0)}, 6 * time.Second},
		"it fails for the timeout": {
			[]check{{0, 0, true}, {60, 66, false}, {84, 90, false}}, Fact{Away: true, From: at(0), Reached: at(0)}, 6 * time.Second,
		},
		"a moment less": {[]check{{0, 0, true}, {60, 66, false}, {83, 89, false}}, Fact{Reached: at(0)}, 6 * time.Second},
		"a blip in between": {
			[]check{{0, 0, true}, {60, 66, false}, {72, 72, true}, {84, 95, false}}, Fact{Reached: at(0)}, 6 * time.Second,
		},
		"it is back": {
			[]check{{0, 0, true}, {60, 66, false}, {84, 90, false}, {600, 600, true}}, Fact{From: at(0), Back: at(600), Reached: at(0)}, time.Minute,
		},
		"it is back, and stays": {
			[]check{{0, 0, true}, {60, 95, false}, {600, 600, true}, {660, 660, true}},
			Fact{From: at(0), Back: at(600), Reached: at(0)},
			time.Minute,
		},
		"it is back, and a check fails": {
			[]check{{0, 0, true}, {60, 95, false}, {600, 600, true}, {660, 666, false}},
			Fact{From: at(0), Back: at(600), Reached: at(0)},
			6 * time.Second,
		},
		"it is away again": {
			[]check{{0, 0, true}, {60, 95, false}, {600, 600, true}, {660, 700, false}},
			Fact{Away: true, From: at(600), Back: at(600), Reached: at(0)},
			6 * time.Second,
		},
		"it was away from the beginning": {[]check{{0, 6, false}, {24, 30, false}}, Fact{Away: true, From: at(0)}, 6 * time.Second},
		"and is there": {
			[]check{{0, 6, false}, {24, 30, false}, {36, 36, true}}, Fact{From: at(0), Back: at(36), Reached: at(36)}, time.Minute,
		},
	} {
		t.Run(name, func(t *testing.T) {
			var s State
			for _, c := range tc.checks {
				if c.answered {
					s = s.Answered(at(c.begun))
				} else {
					s = s.Failed(at(c.begun), at(c.ended), settings)
				}
			}
			if got := s.Fact(); got != tc.want {
				t.Errorf("got %+v, want %+v", got, tc.want)
			}
			if got := s.Next(settings); got != tc.next {
				t.Errorf("next check in %s, want %s", got, tc.next)
			}
		})
	}
}

func TestNoDurationCausesALoop(t *testing.T) {
	if zero := (Settings{}); (State{}).Next(zero) < time.Second || (State{}).Failed(at(0), at(0), zero).Next(zero) < time.Second {
		t.Error("a server with settings of 0 is checked more often than each second")
	}
}

// The time of an outage does not count.
func TestExtend(t *testing.T) {
	outage := Fact{From: at(100), Back: at(700)}
	for name, tc := range map[string]struct {
		fact            Fact
		since, deadline int
		want            int
	}{
		"no outage":                               {Fact{}, 0, 500, 500},
		"the outage is within it":                 {outage, 0, 1000, 1600},
		"it began in the outage":                  {outage, 400, 1000, 1300},
		"it began after the outage":               {outage, 800, 1000, 1000},
		"its deadline was in the outage":          {outage, 0, 500, 1100},
		"its deadline was before the outage":      {outage, 0, 90, 90},
		"the outage lasts":                        {Fact{Away: true, From: at(100)}, 0, 500, 500},
		"one is back, and the other one is away":  {Fact{Away: true, From: at(100), Back: at(700)}, 0, 500, 500},
		"a second outage lasts, the first counts": {Fact{Away: true, From: at(900), Back: at(700)}, 0, 500, 500},
	} {
		t.Run(name, func(t *testing.T) {
			if got := tc.fact.Extend(at(tc.since), at(tc.deadline)); !got.Equal(at(tc.want)) {
				t.Errorf("got +%s, want +%ds", got.Sub(start), tc.want)
			}
		})
	}
}

func TestBoth(t *testing.T) {
	for name, tc := range map[string]struct{ a, b, want Fact }{
		"neither was away":   {Fact{Reached: at(1)}, Fact{Reached: at(2)}, Fact{Reached: at(2)}},
		"the first is away":  {Fact{Away: true, From: at(5)}, Fact{Reached: at(2)}, Fact{Away: true, From: at(5), Reached: at(2)}},
		"the second is away": {Fact{Reached: at(2)}, Fact{Away: true, From: at(5)}, Fact{Away: true, From: at(5), Reached: at(2)}},
		"both are away":      {Fact{Away: true, From: at(7)}, Fact{Away: true, From: at(5)}, Fact{Away: true, From: at(5)}},
		"both, in reverse":   {Fact{Away: true, From: at(5)}, Fact{Away: true, From: at(7)}, Fact{Away: true, From: at(5)}},
		"one is back later":  {Fact{From: at(1), Back: at(9)}, Fact{From: at(5), Back: at(8)}, Fact{From: at(1), Back: at(9)}},
		"the other one is":   {Fact{From: at(5), Back: at(8)}, Fact{From: at(1), Back: at(9)}, Fact{From: at(1), Back: at(9)}},
		"one is away, the other one is back": {
			Fact{Away: true, From: at(5)}, Fact{From: at(1), Back: at(9)}, Fact{Away: true, From: at(5)},
		},
	} {
		t.Run(name, func(t *testing.T) {
			if got := Both(tc.a, tc.b); got != tc.want {
				t.Errorf("got %+v, want %+v", got, tc.want)
			}
		})
	}
}

func TestSettled(t *testing.T) {
	for name, tc := range map[string]struct {
		fact Fact
		want time.Time
	}{
		"not checked":  {Fact{}, time.Time{}},
		"just reached": {Fact{Reached: at(5)}, at(65)},
		"just back":    {Fact{Reached: at(5), From: at(7), Back: at(50)}, at(110)},
	} {
		if got := tc.fact.Settled(); !got.Equal(tc.want) {
			t.Errorf("%s: got %s, want %s", name, got, tc.want)
		}
	}
}
