package worlds

import (
	"flag"
	"fmt"
	"sync"
	"testing"

	"pgregory.net/rapid"
)

// Some returns how many of all worlds a test tries: all of them, and in the short form a tenth, but
// at least one.
func Some(all int) int {
	if !testing.Short() {
		return all
	}
	return max(1, all/10)
}

// firstSeed is rapid's first seed unless one is set. any number but 0 does; 0 has rapid draw one.
const firstSeed = 1

// rapids keeps tests that run at the same time from changing each other's flags of rapid.
var rapids sync.Mutex //nolint:gochecknoglobals // so are the flags

// Check checks a property in rapid's worlds: that many rounds of -rapid.checks (100), a fifth of
// them in the short form. They are the same each time, so that a failure is due to a change of the
// code; -rapid.seed or RAPID_SEED tries others.
func Check(t *testing.T, rounds int, property func(*rapid.T)) {
	t.Helper()
	rapids.Lock()
	defer rapids.Unlock()
	if value(t, "rapid.seed") == "0" {
		defer set(t, "rapid.seed", firstSeed)()
	}
	var checks int
	if _, err := fmt.Sscan(value(t, "rapid.checks"), &checks); err != nil {
		t.Fatalf("-rapid.checks: %v", err)
	}
	defer set(t, "rapid.checks", rounds*checks)()
	rapid.Check(t, property) //nolint:forbidigo // all others have to use Check
}

func value(t *testing.T, name string) string {
	t.Helper()
	known := flag.Lookup(name)
	if known == nil {
		t.Fatalf("rapid has no flag %s any more", name)
	}
	return known.Value.String()
}

// set sets a flag, and returns a function that restores it.
func set(t *testing.T, name string, to int) (back func()) {
	t.Helper()
	was := value(t, name)
	change := func(to string) {
		if err := flag.Set(name, to); err != nil {
			t.Fatalf("-%s: %v", name, err)
		}
	}
	change(fmt.Sprint(to))
	return func() { change(was) }
}
