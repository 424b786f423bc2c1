package flags

import (
	"bytes"
	goflag "flag"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"
)

// parsed has a flag of every type.
type parsed struct {
	Name, Other string
	Words       []string
	Loud        bool
	Count, Old  int
	Share       float64
	Wait        time.Duration
	Level       level
}

// level is a type that pflag does not know.
type level int

func (l *level) String() string { return strconv.Itoa(int(*l)) }

func (l *level) Set(text string) error {
	n, err := strconv.Atoi(text)
	*l = level(n)
	return err
}

// tried is a command with its flags.
type tried struct {
	*Set
	cmd *cobra.Command
}

// Parse parses as a command does that is run.
func (t *tried) Parse(args []string) error {
	t.cmd.SetArgs(append([]string{}, args...))
	return t.cmd.Execute()
}

func declareParsed() (*parsed, *tried) {
	w := &parsed{}
	cmd := &cobra.Command{Use: "try", Long: "Tries flags.", SilenceErrors: true, SilenceUsage: true}
	set := New(cmd)
	cmd.RunE = func(*cobra.Command, []string) error { return set.Complete() }
	g := set.Group("File")
	g.Config()
	g = set.Group("All types")
	g.String(&w.Name, "name", "unnamed", "a name")
	g.String(&w.Other, "other-name", "", "another one, or | none")
	g.List(&w.Words, "words", []string{"a", "b"}, "some words")
	g.Bool(&w.Loud, "loud", false, "shout")
	g.Int(&w.Count, "count", 3, "how many")
	g.Float(&w.Share, "share", 0, "a share", OrZero)
	g.Duration(&w.Wait, "wait-time", 2*time.Hour, "how long")
	g.Int(&w.Old, "old", 0, "replaced by --count", Ignored)
	foreign := goflag.NewFlagSet("", goflag.ContinueOnError)
	foreign.Var(&w.Level, "v", "")
	g.Go(foreign.Lookup("v"), "0", "how loud")
	return w, &tried{set, cmd}
}

// parseFile parses with a file of that content.
func parseFile(t *testing.T, content string, args ...string) (*parsed, *tried, error) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "fleet.yaml")
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	w, set := declareParsed()
	return w, set, set.Parse(append(args, "--config="+file))
}

func TestFileAcceptsAllFlagsOfTheCommandLine(t *testing.T) {
	want, set := declareParsed()
	err := set.Parse([]string{"--name=0123", "--words=x, z", "--loud", "--count=7", "--share=0.25", "--wait-time=1h30m", "--old=-1", "--v=4"})
	if err != nil {
		t.Fatal(err)
	}
	for _, content := range []string{
		"name: '0123'\nwords: [x, z]\nloud: true\ncount: 7\nshare: 0.25\nwait-time: 1h30m\nold: -1\nv: 4\n",
		"name: '0123'\nwords: [x, z]\nloud: yes\ncount: +7\nshare: 0.250\nwait-time: 090m\nold: &n -1\nv: 04\n",
		"{name: '0123', words: 'x,z', loud: 'true', count: '7', share: '0.25', wait-time: 90m, old: '-1', v: '4'}",
	} {
		got, set, err := parseFile(t, content)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-command line +file):\n%s", content, diff)
		}
		if len(set.Ineffective()) != 1 {
			t.Errorf("want a remark on old, got %v", set.Ineffective())
		}
	}
}

func TestCommandLineOverridesFileAndFileOverridesDefault(t *testing.T) {
	const content = "name: file\nwords: [file]\ncount: 5\n"
	// A default that is set explicitly, too.
	for _, args := range [][]string{{"--name=line", "--words=line"}, {"--name=unnamed", "--words=a,b"}} {
		got, _, err := parseFile(t, content, args...)
		if err != nil {
			t.Fatal(err)
		}
		want := strings.TrimPrefix(args[0], "--name=")
		if got.Name != want || strings.Join(got.Words, ",") != strings.TrimPrefix(args[1], "--words=") || got.Count != 5 ||
			got.Wait != 2*time.Hour {
			t.Errorf("%v: got %+v", args, *got)
		}
	}
}

func TestEmptyFileSetsNothing(t *testing.T) {
	for _, content := range []string{"", "# only a comment\n", "{}"} {
		got, _, err := parseFile(t, content)
		if err != nil || got.Count != 3 {
			t.Errorf("%q: %+v, %v", content, *got, err)
		}
	}
}

func TestInvalidFilesAreRejectedWithThePlace(t *testing.T) {
	for _, tc := range []struct{ content, want string }{
		{"cuont: 3", `there is no flag "cuont"; the nearest is "count"`},
		{"waitTime: 1s", `there is no flag "waitTime"; the nearest is "wait-time"`},
		{"wait_time: 1s", `there is no flag "wait_time"; the nearest is "wait-time"`},
		{"--count: 3", `there is no flag "--count"; the nearest is "count"`},
		{"config: other.yaml", "config: a file cannot name another file"},
		{
			"count: x",
			`count: expected a whole number below 2^63 in decimal digits, without leading zeros, got "x"; correct it, or leave it out for 3`,
		},
		{"count: 1.5", `count: expected a whole number below 2^63 in decimal digits, without leading zeros, got "1.5"`},
		{"count: 5.0", `count: expected a whole number below 2^63 in decimal digits, without leading zeros, got "5.0"`},
		{"count: 0", `count: expected more than 0, got "0"; correct it, or leave it out for 3`},
		{"share: -1", `share: expected 0 or more, got "-1"`},
		{"count: 010", `count: expected a whole number below 2^63 in decimal digits, without leading zeros, got "010"`},
		{"count: '010'", `count: expected a whole number below 2^63 in decimal digits, without leading zeros, got "010"`},
		{"count: 0x10", `count: expected a whole number below 2^63 in decimal digits, without leading zeros, got "0x10"`},
		{"count: 1_000", `count: expected a whole number below 2^63 in decimal digits, without leading zeros, got "1_000"`},
		{"count: &n -07\nold: *n", `count: expected a whole number below 2^63 in decimal digits, without leading zeros, got "-07"`},
		{"count: [3]", `count: expected a whole number below 2^63 in decimal digits, without leading zeros, got "[3]"`},
		{"count:", `count: expected a whole number below 2^63 in decimal digits, without leading zeros, got "nothing"`},
		{"wait-time: 2", `wait-time: expected a duration such as 30s, 10m or 1h30m, got "2"; correct it, or leave it out for 2h`},
		{"name: 0123", `name: expected a text, in quotes where YAML would read another type, got "0123"`},
		{"name: no", `name: expected a text, in quotes where YAML would read another type, got "false"`},
		{"words: [a, 1]", `words: expected a list of texts, in quotes where YAML would read another type, got "1"`},
		{"words: {a: b}", "words: expected words with commas between them, or a list of texts"},
		{"loud: perhaps", `loud: expected true or false, got "perhaps"`},
		{"loud: {}", "loud: expected true or false"},
		{"v: much", `v: expected how loud, got "much"`},
		{"count: 1\ncount: 2", "expected YAML with the names of flags as keys"},
		{"name: a\n---\ncount: 6", "expected one YAML document, got another one"},
		{"- count", "expected YAML with the names of flags as keys"},
		{"count: [", "expected YAML with the names of flags as keys"},
		{"count: x\nloud: x", "loud: expected true or false"}, // all errors are reported
	} {
		_, _, err := parseFile(t, tc.content)
		if err == nil || !strings.Contains(err.Error(), tc.want) || !strings.Contains(err.Error(), "fleet.yaml: ") {
			t.Errorf("%s: want an error with the file's name and\n%s, got\n%v", tc.content, tc.want, err)
		}
	}
	_, set := declareParsed()
	if err := set.Parse([]string{"--count=010"}); err == nil ||
		!strings.Contains(err.Error(), `--count: expected a whole number below 2^63 in decimal digits, without leading zeros, got "010"`) {
		t.Errorf("a leading zero on the command line: %v", err)
	}
	_, set = declareParsed()
	if err := set.Parse([]string{"--config=/does/not/exist"}); err == nil || !strings.Contains(err.Error(), "--config: open /does/not/exist") {
		t.Errorf("a file that does not exist: %v", err)
	}
}

func TestIneffectiveFlagsAreThoseThatWereSet(t *testing.T) {
	_, set := declareParsed()
	if err := set.Parse([]string{"--old=0", "--count=4"}); err != nil {
		t.Fatal(err)
	}
	want := []Ineffective{{Flag: "--old", Why: "replaced by --count"}}
	if diff := cmp.Diff(want, set.Ineffective()); diff != "" {
		t.Errorf("remarks (-want +got):\n%s", diff)
	}
}

func TestPrinted(t *testing.T) {
	_, set := declareParsed()
	const help = `Tries flags.

Usage:
  try [flags]

File:
      --config string   YAML file with flags that the command line does not have: their names,
                        without dashes, as keys

All types:
      --name string          a name (default "unnamed")
      --other-name string    another one, or | none
      --words list           some words (default a,b)
      --loud                 shout
      --count int            how many (default 3)
      --share float          a share
      --wait-time duration   how long (default 2h)
      --old int              replaced by --count
  -v, --v level              how loud

General flags:
  -h, --help   help for try
`
	var printed bytes.Buffer
	set.cmd.SetOut(&printed)
	if err := set.Parse([]string{"--help"}); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(help, printed.String()); diff != "" {
		t.Errorf("help (-want +got):\n%s", diff)
	}
	const row = "| `--other-name` |  | another one, or \\| none |\n"
	if got := set.Markdown(); !strings.Contains(got,
		"## All types\n\n| flag | default | meaning |\n|---|---|---|\n| `--name` | `unnamed` | a name |\n"+row) {
		t.Errorf("Markdown:\n%s", got)
	}
}

func TestDefaultsOfDurations(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0s", time.Second: "1s", 10 * time.Second: "10s", 90 * time.Second: "1m30s", 10 * time.Minute: "10m", 2 * time.Hour: "2h",
		90 * time.Minute: "1h30m", time.Hour + time.Second: "1h0m1s", 96 * time.Hour: "96h", 10 * time.Millisecond: "10ms",
	} {
		set := New(&cobra.Command{})
		set.Group("").Duration(new(time.Duration), "d", d, "")
		if got := set.find("d").DefValue; got != want {
			t.Errorf("%v is printed as %s, want %s", d, got, want)
		}
	}
}

// FuzzFile: a text that was written as YAML is read unchanged, and nothing makes the reader panic.
func FuzzFile(f *testing.F) {
	f.Add("no", "count: 3")
	f.Add("0123", "words: [a, [b], 1]")
	f.Add("a: b\n", "name: !!binary YQ==")
	f.Fuzz(func(t *testing.T, text, content string) {
		_, _, _ = parseFile(t, content)
		asYAML, err := yaml.Marshal(map[string]string{"name": text})
		if err != nil {
			t.Skip()
		}
		var same map[string]string
		if yaml.Unmarshal(asYAML, &same) != nil || same["name"] != text {
			t.Skip() // it is no text for YAML
		}
		got, _, err := parseFile(t, string(asYAML))
		if err != nil || got.Name != text {
			t.Errorf("%q became %q, %v", text, got.Name, err)
		}
	})
}
