package text_test

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/golden"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/view"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/view/text"
)

// compare compares what a view renders as at several widths with a file.
func compare(t *testing.T, file string, render func(text.Style) string) {
	t.Helper()
	var b strings.Builder
	for _, style := range []text.Style{{Now: now}, {Now: now, Width: 100}, {Now: now, Wide: true}} {
		fmt.Fprintf(&b, "== width %d, wide %t\n%s", style.Width, style.Wide, render(style))
	}
	golden.Compare(t, filepath.Join("testdata", file), b.String())
}

func TestTreeShowsTroubleFirstAndFoldsEquals(t *testing.T) {
	s := recorded(t, "snapshot.yaml")
	compare(t, "tree.txt", func(style text.Style) string { return text.Tree(view.TreeOf(s, view.TreeOptions{}), style) })
}

func TestTreeShowsEachMachineOnRequest(t *testing.T) {
	s := recorded(t, "snapshot.yaml")
	compare(t, "tree_unfolded.txt", func(style text.Style) string {
		return text.Tree(view.TreeOf(s, view.TreeOptions{Name: "workers", Unfolded: true}), style)
	})
}

func TestStatusShowsTheWorstFirst(t *testing.T) {
	s := recorded(t, "snapshot.yaml")
	compare(t, "status.txt", func(style text.Style) string { return text.Status(view.StatusOf(s), style) })
}

// TestMissingIsShown: what may not be read does not look like what does not exist.
func TestMissingIsShown(t *testing.T) {
	s := recorded(t, "snapshot.yaml")
	s.Nodes, s.Leases = nil, nil
	s.Missing = []view.Missing{
		{What: view.MissingNodes, Right: "list nodes of the target cluster", Why: "the API server refuses the request"},
		{What: view.MissingLeases, Why: "there are none of a fleet fleet in namespace default"},
	}
	compare(t, "missing.txt", func(style text.Style) string {
		return text.Tree(view.TreeOf(s, view.TreeOptions{Name: "spot"}), style) + text.Status(view.StatusOf(s), style)
	})
}

func TestEmptyViewsSayThatNothingIsThere(t *testing.T) {
	s := view.Snapshot{Now: now, FleetName: "fleet", Missing: []view.Missing{{What: view.MissingLeases, Why: "not read"}}}
	compare(t, "empty.txt", func(style text.Style) string {
		return text.Tree(view.TreeOf(s, view.TreeOptions{}), style) + text.Status(view.StatusOf(s), style)
	})
}

// TestColorsChangeNothingElse: without its colors, a text is the same.
func TestColorsChangeNothingElse(t *testing.T) {
	tree := view.TreeOf(recorded(t, "snapshot.yaml"), view.TreeOptions{})
	colored := text.Tree(tree, text.Style{Now: now, Width: 80, Color: true})
	for _, code := range []string{"\x1b[31m", "\x1b[33m", "\x1b[36m"} {
		if !strings.Contains(colored, code) {
			t.Errorf("no %q in\n%s", code, colored)
		}
	}
	bare := strings.NewReplacer("\x1b[31m", "", "\x1b[33m", "", "\x1b[36m", "", "\x1b[0m", "").Replace(colored)
	if want := text.Tree(tree, text.Style{Now: now, Width: 80}); bare != want {
		t.Errorf("got\n%s\nwant\n%s", bare, want)
	}
	for line := range strings.Lines(bare) {
		if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > 100 {
			t.Errorf("a line has %d characters: %s", n, line)
		}
	}
}

// TestControlCharactersOfMessagesAreRemoved: a message of a cloud can move no cursor.
func TestControlCharactersOfMessagesAreRemoved(t *testing.T) {
	tree := view.Tree{Roots: []view.Branch{{Object: view.Object{Kind: "Machine", Name: "m"}, Message: "a\x1b[2Jb\r\nc"}}}
	if got := text.Tree(tree, text.Style{Now: now}); strings.ContainsAny(got, "\x1b\r") || strings.Count(got, "\n") != 2 {
		t.Errorf("got %q", got)
	}
}

func TestRolloutsAndHistories(t *testing.T) {
	s := recorded(t, "snapshot.yaml")
	compare(t, "rollout.txt", func(style text.Style) string {
		var b strings.Builder
		for _, d := range s.Deployments {
			b.WriteString(text.Rollout(view.RolloutOf(d, s.SetsOf(d)), style) + text.History(view.HistoryOf(d, s.SetsOf(d)), style))
		}
		return b.String()
	})
}

func TestWhyOfEachMachine(t *testing.T) {
	s := recorded(t, "snapshot.yaml")
	compare(t, "why.txt", func(style text.Style) string {
		var b strings.Builder
		for _, name := range []string{
			"workers-a-hjklm", "workers-a-npqrs", "workers-a-tvwxz", "workers-b-pqrst", "spot-a-bbbbb", "spot-a-ccccc", "workers-a-old12",
		} {
			y, err := view.WhyOf(s, "prod", name, nil)
			if err != nil {
				t.Fatal(err)
			}
			b.WriteString(text.Why(y, style) + "\n")
		}
		return b.String()
	})
}

func TestOwnersSlotsAndLoad(t *testing.T) {
	s := recorded(t, "snapshot.yaml")
	metrics := map[string]view.Metrics{
		"fleet-0": {Version: "v0.1.0", Commit: "abc", Cores: 0.25, Memory: 70 << 20, InFlight: 2, Waiting: 3, Oldest: 1.5},
	}
	compare(t, "fleet.txt", func(style text.Style) string {
		f := view.FleetOf(s)
		return text.Owners(view.OwnersOf(s, nil), style) + text.Slots(f, style) + text.Slot(f.Slots[1:3], style) +
			text.Top(view.TopOf(s, metrics), style) +
			text.Versions(view.VersionsOf(view.Build{Name: "kubectl-mcf", Version: "v0.1.1", Commit: "def"}, s, metrics), style)
	})
}

func TestDrains(t *testing.T) {
	s := recorded(t, "snapshot.yaml")
	compare(t, "drain.txt", func(style text.Style) string {
		var b strings.Builder
		for _, n := range s.Nodes {
			if n.Name != "workers-a-tvwxz" && n.Name != "workers-a-hjklm" {
				continue
			}
			m, err := s.FindMachine(n)
			if err != nil {
				t.Fatal(err)
			}
			of := s
			if n.Name == "workers-a-hjklm" {
				of.Pods = nil
			}
			b.WriteString(text.Drain(view.DrainOf(of, n, m), style) + "\n")
		}
		return b.String()
	})
}

func TestTargets(t *testing.T) {
	s := recorded(t, "snapshot.yaml")
	reads := []view.TargetRead{
		{Server: "https://one", Asked: true, Nodes: s.Nodes, Credentials: "token", Expires: now.AddDate(0, 0, 30)},
		{Namespace: "prod", Server: "https://two", Asked: true, Err: errors.New("connection refused"), Credentials: "certificate"},
		{Namespace: "dev", Server: "https://three", Asked: true, Nodes: s.Nodes[:1], Credentials: "token", Expires: now.Add(-1)},
		{Namespace: "test", Server: "https://four", Asked: true, Credentials: "token", Expires: now.Add(1)},
		{Namespace: "other", Err: errors.New("Secret t: expected a token or a client certificate, got neither")},
	}
	compare(t, "targets.txt", func(style text.Style) string { return text.Targets(view.TargetsOf(s, reads), style) })
}
