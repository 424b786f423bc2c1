package disruption

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/target/reach"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/scenario"
)

var start = time.Date(2026, 1, 2, 3, 0, 0, 0, time.UTC)

func limits() Limits {
	return Limits{HealthTimeout: 10 * time.Minute, Budget: intstr.FromInt32(1), Thresholds: DefaultThresholds()}
}

// at returns the time after a duration since the start.
func at(t *testing.T, text string) metav1.Time {
	t.Helper()
	d, err := time.ParseDuration(text)
	if err != nil {
		t.Fatal(err)
	}
	return metav1.NewTime(start.Add(d))
}

// TestDisruptions decides on the scenarios in testdata/disruptions.txt.
//
//	now: 11m               since the start
//	limit: 2               or a percentage; default 1
//	sets: 3 2              replicas of its sets; default one set with as many replicas as there are machines
//	open: z1               a zone, or all; z1/n in a namespace, machines are in n
//	uncounted              not every slot was counted
//	servers: away          an API server is away; or back since 10m, with the time
//	never tried            an open circuit breaker lets no machine be replaced, however long it stays open
//	machine: a Running     its name and phase; then any words of machineWords
//
// The result lists the machines with a disruption, new ones with a plus, those that have lost it
// with a minus; the open circuit breakers; and when to decide again.
func TestDisruptions(t *testing.T) {
	scenario.Run(t, "testdata/disruptions.txt", func(t *testing.T, s scenario.Scenario) string {
		t.Helper()
		w := World{Limits: limits(), Breakers: Snapshot{Complete: true, Open: map[Scope]Count{}}}
		sets := ""
		for _, fact := range s.Given {
			switch fact.Key {
			case "now":
				w.Now = at(t, fact.Value).Time
			case "limit":
				w.Limits.Budget = intstr.Parse(fact.Value)
			case "sets":
				sets = fact.Value
			case "open":
				w.Breakers.Open[readScope(fact.Value)] = Count{}
			case "servers":
				since, isBack := strings.CutPrefix(fact.Value, "back since ")
				if w.Away = !isBack; isBack {
					w.NotBefore = at(t, since).Add(reach.Settle)
				}
			case "uncounted":
				w.Breakers.Complete = false
			case "never tried":
				w.Limits.Thresholds.TryAfter = 0
			case "machine":
				addMachine(t, &w, strings.Fields(fact.Value))
			default:
				t.Fatalf("line %d: unknown key %q", fact.Line, fact.Key)
			}
		}
		addSets(t, &w, sets)
		return describe(w, Decide(w))
	})
}

// readScope reads a zone, or all, and the namespace after it.
func readScope(text string) Scope {
	zone, namespace, _ := strings.Cut(text, "/")
	return Scope{Zone: strings.TrimPrefix(zone, "all"), Namespace: namespace}
}

// addMachine adds a machine: name, phase, words.
func addMachine(t *testing.T, w *World, words []string) {
	t.Helper()
	m := &v1alpha1.Machine{}
	m.Name, m.Namespace, m.UID, m.CreationTimestamp = words[0], "n", types.UID(words[0]), metav1.NewTime(start)
	m.Status.CurrentStatus = v1alpha1.CurrentStatus{
		Phase: v1alpha1.MachinePhase(strings.Trim(words[1], "-")), LastUpdateTime: metav1.NewTime(start),
	}
	m.Status.LastOperation = v1alpha1.LastOperation{Type: v1alpha1.MachineOperationHealthCheck}
	member := Member{Machine: m, Scope: Scope{Zone: "z1"}}
	set, disruption := 0, false
	for _, word := range words[2:] {
		key, value, _ := strings.Cut(word, "=")
		switch key {
		case "since": // start of its phase
			m.Status.CurrentStatus.LastUpdateTime = at(t, value)
		case "born":
			m.CreationTimestamp = at(t, value)
		case "zone":
			member.Scope.Zone = value
		case "never-up":
			m.Status.LastOperation.Type = v1alpha1.MachineOperationCreate
		case "deleted":
			m.DeletionTimestamp = &metav1.Time{Time: w.Now}
		case "kept-until":
			until := at(t, value)
			m.Status.CurrentStatus.PreserveExpiryTime = &until
		case "preserve":
			m.Annotations = map[string]string{v1alpha1.AnnotationPreserve: value}
		case "timeout":
			d, err := time.ParseDuration(value)
			if err != nil {
				t.Fatal(err)
			}
			m.Spec.MachineConfiguration = &v1alpha1.MachineConfiguration{MachineHealthTimeout: &metav1.Duration{Duration: d}}
		case "no-timeout":
			yes := true
			m.Spec.MachineConfiguration = &v1alpha1.MachineConfiguration{DisableHealthTimeout: &yes}
		case "set":
			set, _ = strconv.Atoi(value)
		case "disruption": // with that start, or in its current state
			disruption = true
			p := disruptionOf(m)
			if value != "" {
				p.Since = at(t, value)
			}
			w.Disruptions = append(w.Disruptions, p)
		case "gone": // the machine was deleted; only its disruption is left
			if !disruption {
				t.Fatalf("%v: expected \"disruption\" before \"gone\"", words)
			}
			return
		default:
			t.Fatalf("%v: unknown word %q", words, word)
		}
	}
	is := true
	m.OwnerReferences = []metav1.OwnerReference{{UID: types.UID(fmt.Sprint("set", set)), Controller: &is}}
	w.Machines = append(w.Machines, member)
}

func addSets(t *testing.T, w *World, replicas string) {
	t.Helper()
	if replicas == "" {
		standing := 0
		for _, member := range w.Machines {
			if member.Machine.DeletionTimestamp == nil {
				standing++
			}
		}
		replicas = strconv.Itoa(standing)
	}
	for i, text := range strings.Fields(replicas) {
		n, err := strconv.Atoi(text)
		if err != nil {
			t.Fatal(err)
		}
		set := &v1alpha1.MachineSet{ObjectMeta: metav1.ObjectMeta{UID: types.UID(fmt.Sprint("set", i))}}
		set.Spec.Replicas = int32(n)
		w.Sets, w.Desired = append(w.Sets, set), w.Desired+int32(n)
	}
}

func describe(w World, v Verdict) string {
	var names []string
	for _, p := range w.Disruptions {
		if !isAllowed(v.Disruptions, p.UID) {
			names = append(names, "-"+p.Name)
		}
	}
	for _, p := range v.Disruptions {
		if isAllowed(w.Disruptions, p.UID) {
			names = append(names, p.Name)
		} else {
			names = append(names, "+"+p.Name)
		}
	}
	if len(names) == 0 {
		names = []string{"none"}
	}
	text := "disruptions: " + strings.Join(names, " ")
	if v.Changed != slices.ContainsFunc(names, func(n string) bool { return strings.ContainsAny(n[:1], "+-") }) {
		text += fmt.Sprintf(" (changed: %v)", v.Changed)
	}
	if v.Name() != map[bool]string{true: "Record", false: "Rest"}[v.Changed] {
		text += " (" + v.Name() + ")"
	}
	for _, scope := range v.Open {
		text += "\nopen: " + scope.String()
	}
	if v.Wake > 0 {
		text += "\nagain: in " + v.Wake.String()
	}
	return text
}

// TestBreakers runs the scenarios in testdata/breakers.txt: at each time, the numbers of Ready and
// not Ready machines of each zone.
//
//	at: 10s z1 15/5 z2/a 3/0      with a namespace after the zone, or without, as replicas of older versions report it; with
//	                              "uncounted" somewhere, not every slot was counted
//	remember: z1/a                the previous holder had opened its circuit breaker in a namespace; then, thresholds of annotations
//	use: a not-ready=1            the thresholds of annotations in a namespace from now on
//
// The result has the circuit breakers with the thresholds of the flags and, after their text, with
// those of annotations.
func TestBreakers(t *testing.T) {
	scenario.Run(t, "testdata/breakers.txt", func(t *testing.T, s scenario.Scenario) string {
		t.Helper()
		h, wanted := NewAllBreakers(DefaultThresholds()), map[string][]Thresholds{}
		var lines []string
		for _, fact := range s.Given {
			switch words := strings.Fields(fact.Value); fact.Key {
			case "at":
				lines = append(lines, step(t, h, words)...)
			case "remember":
				scope := readScope(words[0])
				thresholds := append(readThresholds(t, words[1:]), DefaultThresholds())[0]
				lines = append(lines, fmt.Sprintf("remembers %s: new %v", fact.Value, h.Restore(thresholds, scope, scope.Namespace)))
			case "use":
				wanted[words[0]] = readThresholds(t, words[1:])
				h.Use(wanted)
			default:
				t.Fatalf("line %d: unknown key %q", fact.Line, fact.Key)
			}
		}
		return strings.Join(lines, "\n")
	})
}

func readThresholds(t *testing.T, texts []string) (all []Thresholds) {
	t.Helper()
	for _, text := range texts {
		thresholds, err := ParseThresholds(text, DefaultThresholds())
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, thresholds)
	}
	return all
}

// step returns a line for each of the thresholds in use, those of the flags first.
func step(t *testing.T, h *AllBreakers, words []string) []string {
	t.Helper()
	now, own, complete := at(t, words[0]).Time, Counts{}, true
	for i := 1; i < len(words); i++ {
		if words[i] == "uncounted" {
			complete = false
			continue
		}
		var n Count
		if _, err := fmt.Sscanf(words[i+1], "%d/%d", &n.Ready, &n.NotReady); err != nil {
			t.Fatal(err)
		}
		zone, namespace, _ := strings.Cut(words[i], "/")
		own.Add(Scope{Zone: strings.Trim(zone, "-")}, namespace, n)
		i++
	}
	total, _ := Sum(Own{0: own}, ParseReports(nil, []string{"r"}))
	before := h.Snapshots()
	again := h.Step(now, total, complete)
	after := h.Snapshots()
	first := describeOpen(words[0]+":", after.Of[DefaultThresholds()].Snapshot, before.Of[DefaultThresholds()].Snapshot)
	if !again.IsZero() {
		first += "; again in " + again.Sub(now).String()
	}
	var others []string
	for thresholds, is := range after.Of {
		if thresholds != DefaultThresholds() {
			others = append(others, describeOpen("  "+thresholds.String()+":", is.Snapshot, before.Of[thresholds].Snapshot))
		}
	}
	slices.Sort(others)
	return append([]string{first}, others...)
}

func describeOpen(text string, standing, before Snapshot) string {
	scopes := slices.SortedFunc(maps.Keys(standing.Open), Scope.compare)
	for _, scope := range scopes {
		n := standing.Open[scope]
		text += fmt.Sprintf(" %s (%d of %d);", scope, n.NotReady, n.Ready+n.NotReady)
	}
	if len(scopes) == 0 {
		text += " no breaker is open;"
	}
	if !standing.Complete {
		text += " not complete;"
	}
	if standing.Complete != before.Complete || !maps.EqualFunc(standing.Open, before.Open, func(_, _ Count) bool { return true }) {
		text += " changed;"
	}
	return strings.TrimSuffix(text, ";")
}
