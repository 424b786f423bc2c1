package driver

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestClean(t *testing.T) {
	for text, want := range map[string]string{
		"":                              "",
		"quota of 5 VMs":                "quota of 5 VMs",
		"schön — 良い":                    "schön — 良い",
		"one\r\n\ttwo\x00\x1b[31mthree": "one two [31mthree",
		"\nat the ends\n":               "at the ends",
		"no \xff\xfe UTF-8":             "no UTF-8",
		"a\u202eb\u200bc\u2028d":        "a b c d",
		"\ufffd is a character":         "\ufffd is a character",
	} {
		if got := Clean(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
	for _, long := range []string{strings.Repeat("x", MaxMessage+1), strings.Repeat("良", 1<<20), strings.Repeat("x\n", 1<<20)} {
		got := Clean(long)
		if len(got) > MaxMessage || !utf8.ValidString(got) || !strings.HasSuffix(got, fmt.Sprintf("… (%d bytes in all)", len(long))) {
			t.Errorf("%d bytes became %d: …%q", len(long), len(got), got[max(0, len(got)-40):])
		}
	}
	if exact := strings.Repeat("x", MaxMessage); Clean(exact) != exact {
		t.Error("a text at the limit is cut")
	}
}

func FuzzClean(f *testing.F) {
	f.Add("a\nb", 1)
	f.Add("\xff良", 600)
	f.Fuzz(func(t *testing.T, text string, times int) {
		got := Clean(strings.Repeat(text, min(max(times, 0), 2000)))
		if len(got) > MaxMessage || !utf8.ValidString(got) || strings.ContainsAny(got, "\n\r\x00\x1b\u202e") {
			t.Errorf("%q", got)
		}
		if Clean(got) != got {
			t.Errorf("%q is cleaned again to %q", got, Clean(got))
		}
	})
}

// All texts of an error are bounded.
func TestErrorsShowCleanText(t *testing.T) {
	foreign := strings.Repeat("a line\n", 1<<17)
	err := fmt.Errorf("machine m: %w", Errorf(OpCreate, Internal, "the cloud says: %s", foreign))
	for what, text := range map[string]string{
		"MessageOf": MessageOf(err), "Error": err.Error(), "of no driver": MessageOf(errors.New(foreign)),
	} {
		if len(text) > MaxMessage+100 || strings.ContainsRune(text, '\n') {
			t.Errorf("%s has %d bytes: %.100q", what, len(text), text)
		}
	}
	if got := (&Error{Code: NotFound}).Message(); got != "" {
		t.Errorf("without a cause: %q", got)
	}
	if got := MessageOf(Errorf(OpCreate, Internal, "short")); got != "short" {
		t.Errorf("%q, want the text alone", got)
	}
}
