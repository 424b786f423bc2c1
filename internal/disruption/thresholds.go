package disruption

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// String returns the thresholds in the form that ParseThresholds reads.
func (t Thresholds) String() string {
	return fmt.Sprintf("not-ready=%d,percent=%d,close-percent=%d,close-after=%s,try-after=%s",
		t.NotReady, t.Percent, t.ClosePercent, t.CloseAfter, t.TryAfter)
}

// ParseThresholds returns the thresholds that an annotation sets: "not-ready=3,try-after=1h". The
// keys are the names of the flags without "circuit-breaker-"; those of otherwise apply where a key
// is omitted. Errors: every text that is not exactly that, and thresholds that are not valid
// together.
func ParseThresholds(text string, otherwise Thresholds) (Thresholds, error) {
	if len(text) > shown {
		return otherwise, fmt.Errorf("expected at most %d bytes like not-ready=3,try-after=1h, got %d", shown, len(text))
	}
	t, given := otherwise, map[string]bool{}
	for part := range strings.SplitSeq(text, ",") {
		key, value, _ := strings.Cut(part, "=")
		if given[key] {
			return otherwise, fmt.Errorf("expected each key once, got %q twice in %q", key, text)
		}
		given[key] = true
		if err := setThreshold(&t, key, value); err != nil {
			return otherwise, fmt.Errorf("expected keys and values like not-ready=3,try-after=1h, got %q: %w", text, err)
		}
	}
	if err := t.Validate(); err != nil {
		return otherwise, fmt.Errorf("%q results in %s: %w", text, t, err)
	}
	return t, nil
}

// setThreshold sets the threshold of a key.
func setThreshold(t *Thresholds, key, value string) (err error) {
	switch key {
	case "not-ready":
		t.NotReady, err = strconv.Atoi(value)
	case "percent":
		t.Percent, err = strconv.Atoi(value)
	case "close-percent":
		t.ClosePercent, err = strconv.Atoi(value)
	case "close-after":
		t.CloseAfter, err = time.ParseDuration(value)
	case "try-after":
		t.TryAfter, err = time.ParseDuration(value)
	default:
		return fmt.Errorf("unknown key %q; the keys are not-ready, percent, close-percent, close-after and try-after", key)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", key, err)
	}
	return nil
}

// neverOpens reports whether no number of machines that are not Ready opens a circuit breaker.
func (t Thresholds) neverOpens() bool { return t.Percent == 100 }

// OpensLaterThan reports whether more machines have to be not Ready than with the others:
// thresholds that are set to have machines replaced again, and not to keep a circuit breaker open.
func (t Thresholds) OpensLaterThan(others Thresholds) bool {
	return t.NotReady > others.NotReady || t.Percent > others.Percent
}
