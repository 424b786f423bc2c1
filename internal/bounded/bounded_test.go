package bounded

import (
	"strings"
	"testing"
	"unicode/utf8"
)

func TestText(t *testing.T) {
	for _, tc := range []struct{ text, want string }{
		{"", ""},
		{"0123456789", "0123456789"},
		{"0123456789a", "0123456…"},
		{"012345ä789a", "012345…"},
	} {
		if got := Text(tc.text, 10); got != tc.want || len(got) > 10 || !utf8.ValidString(got) {
			t.Errorf("%q becomes %q, want %q", tc.text, got, tc.want)
		}
	}
	if got := Text(strings.Repeat("x", 1<<20), Message); len(got) != Message {
		t.Errorf("%d bytes of a message of 1 MiB", len(got))
	}
}
