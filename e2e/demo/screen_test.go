package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// at is a scene with one fact, so many milliseconds after the wait began.
func at(ms, done int, vms string) scene {
	s := scene{
		progress: progress{Done: done, Total: 2, What: "machines run"},
		facts:    []fact{{Label: "VMs", Text: vms}},
		elapsed:  time.Duration(ms) * time.Millisecond,
	}
	if done == s.progress.Total {
		s.outcome = reached
	}
	return s
}

func TestWithoutTerminalOnlyNewsArePrinted(t *testing.T) {
	var out strings.Builder
	s := &screen{out: &out}
	s.title(2, "Create machines")
	s.command("kubectl apply -f x")
	s.quote("x created\n")
	for _, now := range []scene{
		at(0, 0, "none"),       // the first is printed
		at(200, 0, "none"),     // nothing new
		at(400, 0, "1 booted"), // new, and too soon
		at(1200, 1, "1 booted"),
		at(3000, 1, "1 booted"), // nothing new
		at(3200, 2, "2 booted"), // reached: printed at any time
	} {
		s.show(now)
	}
	s.show(at(0, 0, "none")) // another wait, which begins like the first
	want := `
 2  Create machines
    $ kubectl apply -f x
      x created
      0.0 s  0 of 2 machines run; VMs: none
      1.2 s  1 of 2 machines run; VMs: 1 booted
      3.2 s  ✓ 2 of 2 machines run; VMs: 2 booted
      0.0 s  0 of 2 machines run; VMs: none
`
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Errorf("printed (-want +got):\n%s", diff)
	}
}

func TestOnATerminalScenesAreDrawnInPlace(t *testing.T) {
	var out strings.Builder
	s := &screen{out: &out, width: func() int { return 58 }}
	s.show(at(0, 0, "none"))
	s.show(at(200, 2, "2 booted"))
	s.note("%s", "next")
	empty := strings.Repeat("╌", barWidth)
	want := "\x1b[?25l" +
		"\r    " + empty + "  0 of 2 machines run\x1b[K\n" + // cut: the time does not fit
		"\r      VMs  none\x1b[K\n" +
		"\x1b[J" +
		"\x1b[2A" +
		"\r    ✓ 2 of 2 machines run  0.2 s\x1b[K\n" +
		"\r      VMs  2 booted\x1b[K\n" +
		"\x1b[J" +
		"\r\x1b[K\x1b[?25h" +
		"    next\n"
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Errorf("printed (-want +got):\n%s", diff)
	}
}

func TestLogIsPrintedAboveTheScene(t *testing.T) {
	var out strings.Builder
	s := &screen{out: &out, width: func() int { return 80 }}
	s.log("before it")
	s.show(at(0, 0, "none"))
	out.Reset()
	s.log()
	s.log("one", "two")
	s.show(at(200, 0, "none"))
	if want := "\x1b[2A\r\x1b[Jone\ntwo\n\r    "; !strings.HasPrefix(out.String(), want) {
		t.Errorf("want the scene replaced and drawn below, %q, got %q", want, out.String())
	}
}

func TestScreenAfterAnInterruptedScene(t *testing.T) {
	var out strings.Builder
	s := &screen{out: &out, width: func() int { return 80 }}
	s.show(at(0, 0, "none"))
	out.Reset()
	s.print("Interrupted.")
	s.show(at(0, 0, "none"))
	got := out.String()
	if !strings.HasPrefix(got, "\r\x1b[K\x1b[?25hInterrupted.\n") {
		t.Errorf("want the cursor back and ^C overwritten, got %q", got)
	}
	if strings.Contains(got, "A") {
		t.Errorf("want nothing drawn over what was printed, got %q", got)
	}
}

func TestNoEscapeSequencesWithoutATerminal(t *testing.T) {
	file, err := os.Create(filepath.Join(t.TempDir(), "out"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	s := newScreen(file, func(string) string { return "" })
	s.title(1, "a")
	s.show(at(0, 0, "none"))
	s.show(at(0, 2, "none"))
	text, err := os.ReadFile(file.Name())
	if err != nil {
		t.Fatal(err)
	}
	if strings.ContainsAny(string(text), "\x1b\r") || len(text) == 0 {
		t.Errorf("want plain text in a file, got %q", text)
	}
}

func TestLabOutputEndsWhereItsGuideBegins(t *testing.T) {
	var out strings.Builder
	o := &labOutput{screen: &screen{out: &out}}
	for _, piece := range []string{"   0.0s  etcd is", " ready\n   1.0s  fleet-0 is ready\n", "\nThe lab is up.\n\nLogs are in x.\n"} {
		if n, err := o.Write([]byte(piece)); n != len(piece) || err != nil {
			t.Fatalf("Write = %d, %v; want %d", n, err, len(piece))
		}
	}
	want := "         0.0s  etcd is ready\n         1.0s  fleet-0 is ready\n"
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Errorf("printed (-want +got):\n%s", diff)
	}
}

func TestRefusals(t *testing.T) {
	for name, test := range map[string]struct {
		args []string
		dir  string
		want int
	}{
		"help":                   {[]string{"-h"}, ".", 0},
		"unknown flag":           {[]string{"--kepe"}, ".", exitUsage},
		"argument":               {[]string{"up"}, ".", exitUsage},
		"no replicas":            {[]string{"--replicas=0"}, ".", exitUsage},
		"outside the repository": {nil, t.TempDir(), exitFailed},
	} {
		t.Run(name, func(t *testing.T) {
			t.Chdir(test.dir)
			var stderr strings.Builder
			if got := run(t.Context(), test.args, nil, &stderr); got != test.want || stderr.Len() == 0 {
				t.Errorf("run(%q) = %d and %q, want %d and a reason", test.args, got, stderr.String(), test.want)
			}
		})
	}
}
