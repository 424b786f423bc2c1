package disruption

import (
	"slices"
	"testing"
	"time"
)

func TestThresholdsAreValidated(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*Thresholds)
		valid  bool
	}{
		"the defaults":             {func(*Thresholds) {}, true},
		"the minimum":              {func(t *Thresholds) { t.NotReady, t.Percent, t.ClosePercent, t.CloseAfter = 1, 1, 1, 0 }, true},
		"the maximum":              {func(t *Thresholds) { t.Percent, t.ClosePercent = 100, 100 }, true},
		"no machine":               {func(t *Thresholds) { t.NotReady = 0 }, false},
		"no percentage":            {func(t *Thresholds) { t.Percent, t.ClosePercent = 0, 0 }, false},
		"more than all":            {func(t *Thresholds) { t.Percent = 101 }, false},
		"it never closes":          {func(t *Thresholds) { t.ClosePercent = 0 }, false},
		"it closes where it opens": {func(t *Thresholds) { t.ClosePercent = t.Percent + 1 }, false},
		"a negative time":          {func(t *Thresholds) { t.CloseAfter = -time.Second }, false},
	} {
		thresholds := DefaultThresholds()
		tc.change(&thresholds)
		if err := thresholds.Validate(); (err == nil) != tc.valid {
			t.Errorf("%s: %v, want valid: %t", name, err, tc.valid)
		}
	}
}

// The status of a root opens a circuit breaker in its own namespace only, for each scope that it
// names.
func TestRememberedBreakerIsOfOneNamespace(t *testing.T) {
	var h Breakers
	if !h.Restore(Scope{Zone: "z1"}, "a") || h.Restore(Scope{Zone: "z1"}, "a") || !h.Restore(Scope{Zone: "z1"}, "b") {
		t.Error("the first of each namespace is new, and no other")
	}
	open := h.Snapshot().Open
	if _, all := open[Scope{Zone: "z1"}]; all || len(open) != 2 {
		t.Errorf("open: %v, want the zone in the namespaces a and b", open)
	}
}

// If several circuit breakers are about to close, Step returns the time of the first.
func TestStepReturnsWhenTheFirstBreakerCloses(t *testing.T) {
	thresholds := DefaultThresholds()
	for range 20 { // maps have no order
		var h Breakers
		now := time.Unix(0, 0)
		step := func(after time.Duration, z1, z2 int) time.Duration {
			now = now.Add(after)
			own := Counts{}
			own.Add(Scope{Zone: "z1"}, "a", Count{Ready: 10 - z1, NotReady: z1})
			own.Add(Scope{Zone: "z2"}, "a", Count{Ready: 10 - z2, NotReady: z2})
			own.Add(Scope{Zone: "z3"}, "a", Count{Ready: 100})
			total, _ := Sum(Own{0: own}, ParseReports(nil, []string{"r"}))
			again := h.step(now, thresholds, rank(total), true)
			return again.Sub(now)
		}
		step(0, 8, 8)
		if got := step(0, 0, 8); got != thresholds.CloseAfter {
			t.Fatalf("one is about to close: next step in %s, want %s", got, thresholds.CloseAfter)
		}
		if got := step(time.Minute, 0, 0); got != thresholds.CloseAfter-time.Minute {
			t.Fatalf("both are about to close: next step in %s, want %s", got, thresholds.CloseAfter-time.Minute)
		}
	}
}

func TestScopeString(t *testing.T) {
	want := []string{
		"the target cluster", "the target cluster t", "zone z of the target cluster t", "zone z of the target cluster t in namespace n",
	}
	var got []string
	for _, s := range []Scope{{}, {Target: "t"}, {Target: "t", Zone: "z"}, {Target: "t", Zone: "z", Namespace: "n"}} {
		got = append(got, s.String())
	}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

func rankOne(t Tally) rankedTally { return rank(map[Scope]Tally{{}: t})[Scope{}] }

// All processes exclude the same namespace, so that all open the same circuit breakers.
func TestWorstNamespace(t *testing.T) {
	for range 20 { // maps have no order
		tally := Tally{Count: Count{Ready: 5, NotReady: 9}, Unready: map[string]int{"a": 1, "b": 4, "c": 4, "d": 0}}
		for except, want := range map[string]string{"": "b", "b": "c", "c": "b"} {
			if got := rankOne(tally).worst(except); got != want {
				t.Fatalf("without %q the worst is %q, want %q", except, got, want)
			}
		}
	}
	if got := rankOne(Tally{Unready: map[string]int{"a": 0}}).worst(""); got != "" {
		t.Errorf("of none that is not Ready the worst is %q", got)
	}
	// A Lease can name the namespace "", which no machine has.
	forged := ParseReports(map[string]string{"r": `{"counts":{"/":{"0":[0,9]}},"unready":{"/":{"":{"0":9}}}}`}, []string{"r"})
	total, _ := Sum(nil, forged)
	if got := rankOne(total[Scope{}]).evidence(""); got != (Count{NotReady: 9}) {
		t.Errorf("%+v, want all machines of no namespace", got)
	}
	// A Lease can name more machines than it has counted.
	if got := rankOne(Tally{Count: Count{Ready: 1, NotReady: 2}, Unready: map[string]int{"a": 5}}).evidence(""); got != (Count{Ready: 1}) {
		t.Errorf("%+v, want none that is not Ready", got)
	}
}
