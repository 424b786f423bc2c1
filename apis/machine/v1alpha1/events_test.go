package v1alpha1_test

import (
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
)

var update = flag.Bool("update", false, "write docs/events.md anew")

// TestEventsPage compares docs/events.md with the reasons of Events.
func TestEventsPage(t *testing.T) {
	const page = "../../../docs/events.md"
	got := eventsPage()
	if *update {
		if err := os.WriteFile(page, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(got, "\n")); diff != "" {
		t.Errorf("docs/events.md is not what the code says; run make generate (-page +code):\n%s", diff)
	}
}

// eventsPage tells of all Events, by the kind of object that they are about.
func eventsPage() string {
	var out strings.Builder
	out.WriteString(`<!-- Made by make generate from apis/machine/v1alpha1/events*.go. Change those. -->
# Events

What the fleet tells by Events (` + "`kubectl describe`, `kubectl events`" + `), and what to do about each. Events say when something
happened; what holds stands in the object's status. However often something is tried, it is told once. Machine Controller
Manager has no Events on Machines.
`)
	for _, kind := range []string{"Machine", "MachineSet", "MachineDeployment", "MachineClass", "Lease"} {
		fmt.Fprintf(&out, "\n## On a %s\n\n| reason | type | when | what to do |\n|---|---|---|---|\n", kind)
		for _, e := range v1alpha1.EventReasons() {
			if !slices.Contains(e.On, kind) {
				continue
			}
			severity := "Normal"
			if e.Warning {
				severity = "Warning"
			}
			do := e.Do
			if do == "" {
				do = "Nothing."
			}
			fmt.Fprintf(&out, "| `%s` | %s | %s | %s |\n", e.Reason, severity, e.When, do)
		}
	}
	return out.String()
}

func TestEveryEventHasOneRow(t *testing.T) {
	rows := map[string]int{}
	for _, e := range v1alpha1.EventReasons() {
		rows[e.Reason]++
		if len(e.On) == 0 || !strings.HasSuffix(e.When, ".") || e.Warning && e.Do == "" {
			t.Errorf("%s: want kinds, sentences, and for a warning what to do about it, got %+v", e.Reason, e)
		}
	}
	for name, reason := range eventConstants(t) {
		if rows[reason] == 0 {
			t.Errorf("%s is a reason of Events without a row in v1alpha1.EventReasons", name)
		}
	}
	for reason, n := range rows {
		if n > 1 {
			t.Errorf("%s has %d rows", reason, n)
		}
	}
}

// eventConstants returns the values of the constants that are named as reasons of Events.
func eventConstants(t *testing.T) map[string]string {
	t.Helper()
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]string{}
	for _, file := range files {
		syntax, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(syntax, func(n ast.Node) bool {
			spec, ok := n.(*ast.ValueSpec)
			if !ok {
				return true
			}
			for i, name := range spec.Names {
				if !strings.HasPrefix(name.Name, "Event") || strings.HasPrefix(name.Name, "EventSource") || i >= len(spec.Values) {
					continue
				}
				if literal, ok := spec.Values[i].(*ast.BasicLit); ok {
					found[name.Name], _ = strconv.Unquote(literal.Value)
				}
			}
			return true
		})
	}
	if len(found) == 0 {
		t.Fatal("no constant is a reason of Events")
	}
	return found
}
