package objectversion

import (
	"cmp"
	"testing"
)

func TestCompare(t *testing.T) {
	for _, tc := range []struct {
		read, known string
		want        int
	}{
		{"9", "10", -1}, {"10", "10", 0}, {"10", "9", 1}, {"184467440737095516160", "99", 1}, // longer than 64 bits
		{"", "9", 1}, {"9", "", 1}, {"", "", 1}, {"x", "9", 1}, {"9", "x", 1}, {"0", "9", 1}, {"09", "10", 1}, {"-1", "9", 1},
	} {
		if got := Compare(tc.read, tc.known); cmp.Compare(got, 0) != tc.want {
			t.Errorf("%q read and %q known: %d, want %d", tc.read, tc.known, got, tc.want)
		}
	}
}
