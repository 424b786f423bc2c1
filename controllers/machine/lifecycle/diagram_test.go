package lifecycle

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/golden"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/scenario"
)

const (
	diagramPage = "../../../docs/machine-lifecycle.md"
	// What stands between these two lines of the page is made from the scenarios.
	diagramBegin = "<!-- From here on made by make generate, from what controllers/machine/lifecycle decides in its scenarios. -->"
	diagramEnd   = "<!-- To here. -->"
)

// step is what a machine does in one scenario, or in one pass: it stays in its phase or goes to another.
type step struct {
	from, to v1alpha1.MachinePhase
	// ends reports whether our finalizer goes, and so the machine.
	ends bool
}

func stepOf(w World, v Verdict) step {
	s := step{from: w.Machine.Status.CurrentStatus.Phase, to: w.Machine.Status.CurrentStatus.Phase}
	if v.Machine != nil {
		s.to = v.Machine.Status.CurrentStatus.Phase
		s.ends = hasFinalizer(w.Machine) && !hasFinalizer(v.Machine)
	}
	return s
}

// leads reports whether a step leads anywhere.
func (s step) leads() bool { return s.from != s.to || s.ends }

// lived are the steps that machines took in TestALifeEndsRight, and the action that led there.
var lived = map[step]Action{}

// everyStepIsReported compares the steps of lives with those of scenarios.
func everyStepIsReported(t *testing.T) {
	t.Helper()
	steps := reportedSteps(t)
	for step, action := range lived {
		if step.leads() && !slices.ContainsFunc(steps, func(reported reportedStep) bool { return reported.step == step }) {
			t.Errorf("a machine went from %s to %s (ends: %t) with %s: expected a scenario in testdata for it",
				phaseName(step.from), phaseName(step.to), step.ends, action)
		}
	}
}

// reportedStep is a step of a scenario.
type reportedStep struct {
	step

	scenario string
	action   Action
	event    string // "" for none
	byHand   bool   // only a client that changes what only the controller should leads there
}

// reportedSteps decides on all scenarios.
func reportedSteps(t *testing.T) []reportedStep {
	t.Helper()
	var all []reportedStep
	for _, f := range scenario.All(t, "testdata/*.txt") {
		for _, s := range f.Scenarios {
			w := given(t, s)
			v := Decide(w)
			one := reportedStep{step: stepOf(w, v), scenario: s.Name, action: v.Do, byHand: filepath.Base(f.Path) == "by-hand.txt"}
			if len(v.Events) > 0 {
				one.event = v.Events[0].Reason // that of the step; others come with it
			}
			all = append(all, one)
		}
	}
	return all
}

// TestDiagram compares the page about the life of a machine with the scenarios.
func TestDiagram(t *testing.T) {
	steps := reportedSteps(t)
	phases := phasesOf(steps)
	for _, phase := range phases {
		if phase != v1alpha1.MachineTerminating && !slices.ContainsFunc(steps, func(s reportedStep) bool {
			return s.from == phase && s.to == v1alpha1.MachineTerminating
		}) {
			t.Errorf("no scenario has the deletion of a machine in phase %s", phaseName(phase))
		}
	}
	page, err := os.ReadFile(diagramPage)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, found1 := strings.Cut(string(page), diagramBegin+"\n")
	_, after, found2 := strings.Cut(rest, diagramEnd+"\n")
	if !found1 || !found2 {
		t.Fatalf("%s: expected the lines\n%s\n%s", diagramPage, diagramBegin, diagramEnd)
	}
	for _, phase := range phases {
		if row := fmt.Sprintf("\n| %s | ", phaseName(phase)); !strings.Contains(before, row) {
			t.Errorf("%s: expected a row with the meaning of %s", diagramPage, phaseName(phase))
		}
	}
	want := diagram(phases, steps)
	golden.Compare(t, diagramPage, before+diagramBegin+"\n"+want+diagramEnd+"\n"+after)
}

// phasesOf returns the phases that occur, in the order in which most machines come through them.
func phasesOf(steps []reportedStep) []v1alpha1.MachinePhase {
	order := []v1alpha1.MachinePhase{
		"", v1alpha1.MachineCrashLoopBackOff, v1alpha1.MachinePending, v1alpha1.MachineAvailable, v1alpha1.MachineRunning,
		v1alpha1.MachineUnknown, v1alpha1.MachineInPlaceUpdating, v1alpha1.MachineInPlaceUpdateSuccessful,
		v1alpha1.MachineInPlaceUpdateFailed, v1alpha1.MachineFailed, v1alpha1.MachineTerminating,
	}
	seen := map[v1alpha1.MachinePhase]bool{}
	for _, s := range steps {
		seen[s.from], seen[s.to] = true, true
	}
	return slices.SortedFunc(maps.Keys(seen), func(a, b v1alpha1.MachinePhase) int {
		return cmp.Compare(slices.Index(order, a), slices.Index(order, b))
	})
}

func phaseName(p v1alpha1.MachinePhase) string { return cmp.Or(string(p), "no phase yet") }

// diagram is the made part of the page.
func diagram(phases []v1alpha1.MachinePhase, steps []reportedStep) string {
	var out strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&out, format+"\n", args...) }
	line("\n```mermaid\nstateDiagram-v2\n    state \"not deleted\" as NotDeleted {\n        state \"no phase yet\" as New\n        [*] --> New")
	for _, from := range phases {
		for _, to := range phases {
			if from != to && to != v1alpha1.MachineTerminating {
				why := slices.DeleteFunc(between(steps, from, to), func(s reportedStep) bool { return s.byHand })
				if len(why) > 0 {
					line("        %s --> %s: %s", stateName(from), stateName(to), label(why))
				}
			}
		}
	}
	line("    }\n    NotDeleted --> Terminating: deleted\n    Terminating --> [*]\n```")
	for _, phase := range phases {
		describePhase(line, phases, steps, phase)
	}
	line("")
	return out.String()
}

func stateName(p v1alpha1.MachinePhase) string { return cmp.Or(string(p), "New") }

// between returns the steps from one phase to another.
func between(steps []reportedStep, from, to v1alpha1.MachinePhase) (found []reportedStep) {
	for _, s := range steps {
		if s.from == from && s.to == to && s.leads() {
			found = append(found, s)
		}
	}
	return found
}

// label says on an arrow why machines go that way: the Events that they do so with or, without any, the first scenario.
func label(steps []reportedStep) string {
	events := slices.DeleteFunc(eventsOf(steps), func(e string) bool { return e == "" })
	if len(events) > 0 {
		return strings.Join(events, ", ")
	}
	return strings.NewReplacer(":", "", ";", ",").Replace(steps[0].scenario) // what ends a label in Mermaid
}

// eventsOf returns the Events of steps, each once, "" for none.
func eventsOf(steps []reportedStep) (events []string) {
	for _, s := range steps {
		if !slices.Contains(events, s.event) {
			events = append(events, s.event)
		}
	}
	return events
}

// describePhase describes what is done in a phase, and what leads out of it.
func describePhase(line func(string, ...any), phases []v1alpha1.MachinePhase, steps []reportedStep, phase v1alpha1.MachinePhase) {
	var actions []string
	for _, s := range steps {
		if action := string(s.action); s.from == phase && s.action != Rest && s.action != Save && !slices.Contains(actions, action) {
			actions = append(actions, action)
		}
	}
	slices.Sort(actions)
	line("\n### %s%s\n", strings.ToUpper(phaseName(phase)[:1]), phaseName(phase)[1:])
	if len(actions) > 0 {
		line("Done here: `%s`.\n", strings.Join(actions, "`, `"))
	}
	line("| to | Event | when |\n|---|---|---|")
	for _, to := range phases {
		steps := between(steps, phase, to)
		for _, event := range eventsOf(steps) {
			row(line, to, event, steps)
		}
	}
}

// row has the causes for which machines enter another phase with an Event: the names of the scenarios.
func row(line func(string, ...any), to v1alpha1.MachinePhase, event string, steps []reportedStep) {
	var whens []string
	for _, s := range steps {
		if s.event == event {
			whens = append(whens, s.scenario)
		}
	}
	if steps[0].ends {
		to = "gone"
	}
	if event != "" {
		event = "`" + event + "`"
	}
	line("| %s | %s | %s |", phaseName(to), event, strings.Join(whens, "; "))
}
