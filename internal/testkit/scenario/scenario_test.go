package scenario

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

const story = `# What is known.
weather: fine

# A comment.
scenario: one goes out
hat: a red one
umbrella
=>
Go
with: a hat

# And another.
scenario: none goes out
=>
`

func write(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "story.txt")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestRead(t *testing.T) {
	f, err := Read(write(t, story))
	if err != nil {
		t.Fatal(err)
	}
	want := []Scenario{
		{Name: "one goes out", Given: []Fact{{"weather", "fine", 2}, {"hat", "a red one", 6}, {"umbrella", "", 7}}, Want: "Go\nwith: a hat"},
		{Name: "none goes out", Given: []Fact{{"weather", "fine", 2}}},
	}
	if diff := cmp.Diff(want, f.Scenarios, cmpopts.IgnoreUnexported(Scenario{})); diff != "" {
		t.Errorf("scenarios (-want +got):\n%s", diff)
	}
}

func TestReadInvalidFileNamesLineAndExpectation(t *testing.T) {
	for text, message := range map[string]string{
		"scenario: a\n=>\nGo\n\nscenario: a\n=>\nGo\n": "story.txt:5: expected a separate name",
		"scenario:\n=>\nGo\n":                          "story.txt:1: expected a separate name",
		"scenario: a\nscenario: b\n=>\nGo\n":           "story.txt:2: expected => and a verdict before",
		"=>\nGo\n":                                     "story.txt:1: expected a scenario before",
		"scenario: a\n=>\nGo\n\nhat: red\n":            "story.txt:5: expected a scenario",
		"scenario: a\nhat: red\n":                      `at the end of scenario "a"`,
	} {
		if _, err := Read(write(t, text)); err == nil || !strings.Contains(err.Error(), message) {
			t.Errorf("%q: want an error with %q, got %v", text, message, err)
		}
	}
}

func TestRewriteChangesVerdictsOnly(t *testing.T) {
	path := write(t, story)
	f, err := Read(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Rewrite([]string{"Stay", "Stay\nat: home\n"}); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	want := strings.Replace(story, "Go\nwith: a hat\n", "Stay\n", 1) + "Stay\nat: home\n"
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Errorf("rewritten (-want +got):\n%s", diff)
	}
	if err := f.Rewrite([]string{"Stay", "Stay\n\nat home"}); err == nil {
		t.Error("a verdict with a blank line: want an error")
	}
}
