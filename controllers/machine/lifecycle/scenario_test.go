package lifecycle

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/machinefacts"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/scenario"
)

// TestScenarios decides on the scenarios of the files in testdata.
//
// Given is always a machine that was just created, with our finalizer and an orderly class and
// secret, and of which nothing else is known; see fresh. Each line changes that. The lines are
// carried out in order; the map facts, in facts_test.go, has a function and an example for each
// key, and is where new ones go. Times are counted from the creation of the machine. The names of
// scenarios say when they happen: docs/machine-lifecycle.md quotes those of the ones that lead from
// one phase to another.
//
// The verdict is worked out as follows; nothing of it is left out, so a new field of Verdict needs
// nothing here.
//
//	Save                                               the action
//	phase: Pending → Running                           the phase, also when it stays
//	last operation: Create Failed Internal "…"         if it changes; with "since +5m" if not since now
//	metadata.labels.node: m                            everything else that changes in the machine: the new value,
//	metadata.finalizers: none                          or none
//	again: in 5s                                       Verdict.Wake
//	event: Joined "…"                                  for each Event; the message only if it is not that of the last operation
//	other: {…}                                         any other field of Verdict that is not zero, as JSON
func TestScenarios(t *testing.T) {
	documented, err := os.ReadFile("../../../docs/operations/tracing.md")
	if err != nil {
		t.Fatal(err)
	}
	scenario.Run(t, "testdata/*.txt", func(t *testing.T, s scenario.Scenario) string {
		t.Helper()
		w := given(t, s)
		before := w.Machine.DeepCopy()
		v := Decide(w)
		if diff := cmp.Diff(before, w.Machine); diff != "" {
			t.Errorf("Decide has changed the machine that it was given:\n%s", diff)
		}
		if again := Decide(w); !reflect.DeepEqual(v, again) {
			t.Errorf("Decide says something else the second time: %+v and %+v", v, again)
		}
		expectWaitNamed(t, string(documented), w, v)
		return describe(t, w, v)
	})
}

// expectWaitNamed checks that what a machine waits for has a name, which the documentation of
// traces lists. A machine that runs, or is gone, waits for nothing; one that is preserved is
// decided on again when that ends.
func expectWaitNamed(t *testing.T, documented string, w World, v Verdict) {
	t.Helper()
	m := w.Machine
	if v.Machine != nil {
		m = v.Machine
	}
	phase := m.Status.CurrentStatus.Phase
	isDone := phase == v1alpha1.MachineRunning || phase == v1alpha1.MachineAvailable || m.DeletionTimestamp != nil && len(m.Finalizers) == 0
	isTimed := v.Wake > 0 && !machinefacts.IsPreserved(m, w.Now)
	switch waits := Waits(w, v); {
	case v.Do != Rest:
	case waits == "" && (!isDone || isTimed):
		t.Errorf("the machine in phase %q rests, for %s, and what it waits for has no name", phase, v.Wake)
	case waits != "" && !strings.Contains(documented, "`"+waits+"`"):
		t.Errorf("docs/operations/tracing.md does not list the wait for %q", waits)
	}
}

// given is the world of a scenario.
func given(t *testing.T, s scenario.Scenario) World {
	t.Helper()
	w := fresh()
	for _, fact := range s.Given {
		apply, known := facts[fact.Key]
		if !known {
			t.Fatalf("line %d: expected one of the facts %v, got %q", fact.Line, slices.Sorted(maps.Keys(facts)), fact.Key)
		}
		if err := apply(&w, fact.Value); err != nil {
			t.Fatalf("line %d: %s: %v", fact.Line, fact.Key, err)
		}
	}
	return w
}

// describe writes a verdict as text.
func describe(t *testing.T, w World, v Verdict) string {
	t.Helper()
	var out strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&out, format+"\n", args...) }
	line("%s", v.Do)
	after := w.Machine
	if v.Machine != nil {
		after = v.Machine
	}
	line("phase: %s", phases(w, v))
	now, was := after.Status.LastOperation, w.Machine.Status.LastOperation
	if now != was {
		line("last operation: %s", operation(w, now))
	}
	for _, change := range changes(t, w.Machine, after) {
		line("%s", change)
	}
	if v.Wake > 0 {
		line("again: in %s", v.Wake)
	}
	for _, event := range v.Events {
		line("event: %s", reported(event, now.Description))
	}
	for _, other := range others(t, v) {
		line("%s", other)
	}
	return relative(out.String())
}

func phases(w World, v Verdict) string {
	name := func(p v1alpha1.MachinePhase) string {
		if p == "" {
			return "none"
		}
		return string(p)
	}
	from, to := w.Machine.Status.CurrentStatus.Phase, w.Machine.Status.CurrentStatus.Phase
	if v.Machine != nil {
		to = v.Machine.Status.CurrentStatus.Phase
	}
	if from == to {
		return name(from)
	}
	return name(from) + " → " + name(to)
}

func operation(w World, op v1alpha1.LastOperation) string {
	text := strings.Join(strings.Fields(fmt.Sprintf("%s %s %s", op.Type, op.State, op.ErrorCode)), " ")
	if !op.LastUpdateTime.Time.Equal(w.Now) {
		text += " since " + op.LastUpdateTime.UTC().Format(time.RFC3339)
	}
	return fmt.Sprintf("%s %q", text, op.Description)
}

func reported(e Event, known string) string {
	text := e.Reason
	if e.Message != known {
		text += fmt.Sprintf(" %q", e.Message)
	}
	return text
}

// changes lists what changes in a machine except its phase and its last operation.
func changes(t *testing.T, before, after *v1alpha1.Machine) []string {
	t.Helper()
	was, is := map[string]string{}, map[string]string{}
	flatten(t, before, was)
	flatten(t, after, is)
	paths := maps.Clone(was)
	maps.Copy(paths, is)
	var lines []string
	for _, path := range slices.Sorted(maps.Keys(paths)) {
		switch value, there := is[path]; {
		case !there:
			lines = append(lines, path+": none")
		case value != was[path]:
			lines = append(lines, path+": "+value)
		}
	}
	return lines
}

// flatten writes the values of an object by their paths. A list is one value.
func flatten(t *testing.T, m *v1alpha1.Machine, into map[string]string) {
	t.Helper()
	m = m.DeepCopy()
	m.Status.LastOperation = v1alpha1.LastOperation{}
	m.Status.CurrentStatus = v1alpha1.CurrentStatus{PreserveExpiryTime: m.Status.CurrentStatus.PreserveExpiryTime}
	var walk func(path string, value any)
	walk = func(path string, value any) {
		if fields, ok := value.(map[string]any); ok {
			for name, field := range fields {
				walk(strings.TrimPrefix(path+"."+name, "."), field)
			}
			return
		}
		if text, ok := value.(string); ok {
			into[path] = text
			return
		}
		into[path] = encode(t, value)
	}
	var generic any
	if err := json.Unmarshal([]byte(encode(t, m)), &generic); err != nil {
		t.Fatal(err)
	}
	walk("", generic)
}

func encode(t *testing.T, value any) string {
	t.Helper()
	text, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// others lists the fields of a verdict that describe has no words for.
func others(t *testing.T, v Verdict) []string {
	t.Helper()
	var lines []string
	value := reflect.ValueOf(v)
	for i, field := range reflect.VisibleFields(value.Type()) {
		if slices.Contains([]string{"Do", "Machine", "Wake", "Events"}, field.Name) || value.Field(i).IsZero() {
			continue
		}
		lines = append(lines, strings.ToLower(field.Name[:1])+field.Name[1:]+": "+encode(t, value.Field(i).Interface()))
	}
	return lines
}

var timestamp = regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z`)

// relative writes all times as what has passed since the creation of the machine.
func relative(text string) string {
	return timestamp.ReplaceAllStringFunc(text, func(found string) string {
		at, err := time.Parse(time.RFC3339, found)
		if err != nil {
			return found
		}
		return "+" + at.Sub(born).String()
	})
}
