package disruption

import (
	"strings"
	"testing"
	"time"
)

func TestParseThresholds(t *testing.T) {
	of := func(change func(*Thresholds)) Thresholds {
		t := DefaultThresholds()
		change(&t)
		return t
	}
	for text, want := range map[string]Thresholds{
		"not-ready=3":                       of(func(t *Thresholds) { t.NotReady = 3 }),
		"percent=100":                       of(func(t *Thresholds) { t.Percent = 100 }),
		"try-after=0,close-after=0":         of(func(t *Thresholds) { t.TryAfter, t.CloseAfter = 0, 0 }),
		"close-percent=10,percent=20":       of(func(t *Thresholds) { t.ClosePercent, t.Percent = 10, 20 }),
		"close-after=1m30s,try-after=24h":   of(func(t *Thresholds) { t.CloseAfter, t.TryAfter = 90*time.Second, 24*time.Hour }),
		"not-ready=2,percent=50":            DefaultThresholds(),
		"not-ready=2,percent=50,not-read=3": {},
	} {
		got, err := ParseThresholds(text, DefaultThresholds())
		if (err == nil) != (want != Thresholds{}) || err == nil && got != want {
			t.Errorf("%s: %s, error %v", text, got, err)
		}
	}
}

func TestParseThresholdsInvalidSaysWhatIsExpected(t *testing.T) {
	for text, want := range map[string]string{
		"":                                  "the keys are not-ready, percent, close-percent, close-after and try-after",
		"5":                                 `unknown key "5"`,
		"circuit-breaker-not-ready=5":       "unknown key",
		"not-ready=1,":                      `unknown key ""`,
		"not-ready=1, percent=60":           `unknown key " percent"`,
		"Not-Ready=1":                       "unknown key",
		"not-ready":                         "not-ready: ",
		"not-ready=two":                     "not-ready: ",
		"percent=60%":                       "percent: ",
		"close-percent=1.5":                 "close-percent: ",
		"close-after=5":                     "close-after: ",
		"try-after=1d":                      "try-after: ",
		"not-ready=1,not-ready=1":           "each key once",
		"not-ready=0":                       "the number of machines that are not Ready: expected at least 1, got 0",
		"percent=20":                        "the percentage that closes a circuit breaker: expected 1 to the one that opens it (20)",
		"percent=101":                       "expected 1 to 100, got 101",
		"try-after=-1h":                     "expected at least 0, got -1h",
		"not-ready=99999999999999999999999": "value out of range",
		strings.Repeat("x", 257):            "expected at most 256 bytes like not-ready=3,try-after=1h, got 257",
	} {
		got, err := ParseThresholds(text, DefaultThresholds())
		if err == nil || !strings.Contains(err.Error(), want) || got != DefaultThresholds() {
			t.Errorf("%.50q: %s, error %v, want %q", text, got, err, want)
		}
	}
}

func TestOpensLaterThan(t *testing.T) {
	for text, want := range map[string]bool{
		"not-ready=3": true, "percent=51": true, "not-ready=3,percent=40": true,
		"not-ready=2": false, "not-ready=1": false, "percent=40": false, "close-percent=50": false, "close-after=0": false, "try-after=1s": false,
	} {
		thresholds, err := ParseThresholds(text, DefaultThresholds())
		if err != nil {
			t.Fatal(err)
		}
		if got := thresholds.OpensLaterThan(DefaultThresholds()); got != want {
			t.Errorf("%s: %t, want %t", text, got, want)
		}
	}
}

// Any text is an error or valid thresholds, and valid ones are read as they are written.
func FuzzParseThresholds(f *testing.F) {
	for _, text := range []string{"not-ready=3,try-after=1h", DefaultThresholds().String(), "percent=1,close-percent=1,close-after=0"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		got, err := ParseThresholds(text, DefaultThresholds())
		if err != nil {
			if got != DefaultThresholds() || len(err.Error()) > 8*shown {
				t.Errorf("%q: %s and an error of %d bytes", text, got, len(err.Error()))
			}
			return
		}
		if err := got.Validate(); err != nil {
			t.Errorf("%q: %v", text, err)
		}
		if again, err := ParseThresholds(got.String(), DefaultThresholds()); err != nil || again != got {
			t.Errorf("%q is %s, which is read as %s, error %v", text, got, again, err)
		}
	})
}
