package machinefacts

import (
	"strings"
	"testing"
)

func TestNamesAreOneToOne(t *testing.T) {
	seen := map[string]int64{}
	for ordinal := range int64(1_000_000) {
		name := Name("set", "4a1b2c3d-0000-1111-2222-333344445555", ordinal)
		if other, ok := seen[name]; ok {
			t.Fatalf("ordinals %d and %d have the name %s", ordinal, other, name)
		}
		seen[name] = ordinal
	}
	long := Name(string(make([]byte, 100)), "u", 1)
	if len(long) > maxName {
		t.Errorf("a name of %d characters", len(long))
	}
	if got := Name("worker-z1-68598", "4a1b2c3d-0000-1111-2222-333344445555",
		7); got != Name("worker-z1-68598", "4a1b2c3d-0000-1111-2222-333344445555", 7) {
		t.Errorf("the same ordinal has two names: %s", got)
	}
}

// From some names of a set the next ones cannot be computed as the first ones follow each other:
// neither differences nor any part of the suffix repeats.
func TestNamesCannotBePredicted(t *testing.T) {
	number := func(ordinal int64) int {
		name := Name("set", "4a1b2c3d-0000-1111-2222-333344445555", ordinal)
		n := 0
		for _, c := range []byte(name[len(name)-suffixLength:]) {
			n = n*len(nameAlphabet) + strings.IndexByte(nameAlphabet, c)
		}
		return n
	}
	const names = 2000
	differences, highest := map[int]int{}, [suffixLength]map[byte]int{}
	for i := range highest {
		highest[i] = map[byte]int{}
	}
	for ordinal := range int64(names) {
		differences[(number(ordinal+1)-number(ordinal)+suffixes)%suffixes]++
		name := Name("set", "4a1b2c3d-0000-1111-2222-333344445555", ordinal)
		for i, c := range []byte(name[len(name)-suffixLength:]) {
			highest[i][c]++
		}
	}
	if len(differences) < names-10 {
		t.Errorf("%d names have only %d differences", names, len(differences))
	}
	for i, count := range highest { // each character about 74 times
		for c, n := range count {
			if n < 35 || n > 130 {
				t.Errorf("character %d is %q in %d of %d names", i, c, n, names)
			}
		}
	}
}
