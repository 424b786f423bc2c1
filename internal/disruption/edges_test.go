package disruption

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
)

// ofSet is a machine of a set in a phase since an hour.
func ofSet(set *v1alpha1.MachineSet, name string, phase v1alpha1.MachinePhase) *v1alpha1.Machine {
	m := &v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)}}
	m.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(set, v1alpha1.SchemeGroupVersion.WithKind("MachineSet"))}
	m.Status.CurrentStatus = v1alpha1.CurrentStatus{Phase: phase, LastUpdateTime: metav1.NewTime(start)}
	m.Status.LastOperation.Type = v1alpha1.MachineOperationHealthCheck
	return m
}

func setOf(name string, replicas int32) *v1alpha1.MachineSet {
	set := &v1alpha1.MachineSet{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)}}
	set.Spec.Replicas = replicas
	return set
}

// worldOf is a world an hour after the start, in which all circuit breakers are closed.
func worldOf(sets []*v1alpha1.MachineSet, machines ...*v1alpha1.Machine) World {
	w := World{Now: start.Add(time.Hour), Limits: limits(), Breakers: Snapshot{Complete: true}, Sets: sets, Desired: 3}
	for _, m := range machines {
		w.Machines = append(w.Machines, Member{Machine: m})
	}
	return w
}

// A machine that cannot be decoded exists: no other one is being created instead of it, unless it
// is being deleted or of another set.
func TestUndecodableMachinesAreNotMissing(t *testing.T) {
	deleted := func(m *v1alpha1.Machine) { m.DeletionTimestamp = &metav1.Time{Time: start} }
	for name, c := range map[string]struct {
		change  func(m *v1alpha1.Machine)
		other   bool // of another set
		granted int
	}{"it exists": {func(*v1alpha1.Machine) {}, false, 1}, "it is being deleted": {deleted, false, 0}, "of another set": {
		func(*v1alpha1.Machine) {}, true, 0,
	}} {
		set := setOf("s", 2)
		w := worldOf([]*v1alpha1.MachineSet{set}, ofSet(set, "a", v1alpha1.MachineUnknown))
		undecodable := ofSet(set, "u", "")
		if c.other {
			undecodable = ofSet(setOf("other", 1), "u", "")
		}
		c.change(undecodable)
		w.Undecodable = []*v1alpha1.Machine{undecodable}
		if v := Decide(w); len(v.Disruptions) != c.granted {
			t.Errorf("%s: %d disruptions, want %d", name, len(v.Disruptions), c.granted)
		}
	}
}

// While deletions are held, those that wait are counted for each set, and those of sets that are
// being deleted all.
func TestHeldDeletionsAreCountedForEachSet(t *testing.T) {
	s, another, ending := setOf("s", 1), setOf("another", 2), setOf("ending", 1)
	of := func(set *v1alpha1.MachineSet, names ...string) (machines []*v1alpha1.Machine) {
		for _, name := range names {
			machines = append(machines, ofSet(set, set.Name+name, v1alpha1.MachineRunning))
		}
		return machines
	}
	deleted := of(s, "deleted")
	deleted[0].DeletionTimestamp = &metav1.Time{Time: start}
	transferred := of(s, "transferred")
	transferred[0].Labels = map[string]string{v1alpha1.LabelUpdateResult: v1alpha1.UpdateResultSuccessful}
	neverRan := ofSet(ending, "never-ran", v1alpha1.MachineFailed)
	neverRan.Status.LastOperation.Type = v1alpha1.MachineOperationCreate
	leaving := of(ending, "leaving")
	leaving[0].DeletionTimestamp = &metav1.Time{Time: start}
	sets := []*v1alpha1.MachineSet{s, another}
	for name, c := range map[string]struct {
		machines    []*v1alpha1.Machine
		undecodable []*v1alpha1.Machine
		deleted     bool
		want        int
	}{
		"one set has one too many, another one too few": {slices.Concat(of(s, "a", "b"), of(another, "a")), nil, false, 1},
		"one that is being deleted does not wait":       {append(of(s, "a", "b"), deleted...), nil, false, 1},
		"one that was transferred does not count":       {append(of(s, "a"), transferred...), nil, false, 0},
		"unhealthy ones among those that are too many":  {append(of(s, "a"), ofSet(s, "b", v1alpha1.MachineUnknown)), nil, false, 1},
		"machines of a set that is being deleted": {
			slices.Concat(of(s, "a"), of(ending, "a", "b"), leaving, []*v1alpha1.Machine{neverRan}), nil, false, 2,
		},
		"undecodable ones may have run":                   {of(s, "a"), of(s, "u"), false, 1},
		"undecodable ones of a set that is being deleted": {of(s, "a"), slices.Concat(of(ending, "u"), leaving), false, 1},
		"of a root that is deleted all":                   {slices.Concat(of(s, "a"), of(another, "a"), transferred), of(s, "u"), true, 4},
	} {
		w := worldOf(sets, c.machines...)
		w.Held, w.Undecodable, w.Deleted = true, c.undecodable, c.deleted
		if v := Decide(w); v.Waiting != c.want || len(v.Disruptions) > 1 {
			t.Errorf("%s: %d wait, want %d", name, v.Waiting, c.want)
		}
	}
}

// The text of thresholds has a maximum, which is allowed itself.
func TestParseThresholdsOfTheMaximumLength(t *testing.T) {
	text := "not-ready=" + strings.Repeat("0", shown-len("not-ready=3")) + "3"
	if got, err := ParseThresholds(text, DefaultThresholds()); err != nil || got.NotReady != 3 {
		t.Errorf("%d bytes: %v and %v", len(text), got, err)
	}
}

// The namespaces of thresholds are those that have used them last, and all that fit are in use.
func TestThresholdsOfTheLastNamespacesAreInUse(t *testing.T) {
	flags := DefaultThresholds()
	own := flags
	own.NotReady = 1
	h := NewAllBreakers(flags)
	open := func() (names []string) {
		for scope := range h.Snapshots().Of[own].Open {
			names = append(names, scope.String())
		}
		slices.Sort(names)
		return names
	}
	h.Use(map[string][]Thresholds{"a": {own}, "b": {own, own}})
	h.Restore(own, Scope{Zone: "z", Namespace: "b"}, "b")
	both := open()
	h.Use(map[string][]Thresholds{"a": {own}})
	onlyA := open()
	h.Use(map[string][]Thresholds{})
	if _, used := h.Snapshots().Of[own]; used {
		t.Error("thresholds that no namespace uses any more are still in use")
	}
	if _, used := h.Snapshots().Of[flags]; !used {
		t.Error("the thresholds of the flags are not in use any more")
	}
	if strings.Contains(strings.Join(onlyA, " "), "namespace b") || !strings.Contains(strings.Join(both, " "), "namespace b") {
		t.Errorf("open with both namespaces: %q, with a alone: %q", both, onlyA)
	}
}

// Thresholds that are in use can be used by one more namespace, also when no others have room.
func TestOneMoreNamespaceCanUseThresholdsInUse(t *testing.T) {
	flags := DefaultThresholds()
	var many []Thresholds
	for i := range MaxThresholds {
		of := flags
		of.NotReady = 100 + i
		many = append(many, of)
	}
	last := many[len(many)-1]
	h := NewAllBreakers(flags)
	h.Use(map[string][]Thresholds{"a": many, "b": append(slices.Repeat([]Thresholds{flags}, len(many)), last)})
	s := h.Snapshots()
	if got, _, displaced, _ := s.For([]Thresholds{last, flags}); got != last || displaced || !s.Of[last].Namespaces["b"] {
		t.Errorf("%s, displaced %t, used by %v, want by b, too", got, displaced, s.Of[last].Namespaces)
	}
}

// What is remembered has no effect with thresholds that are not in use, or with which no circuit
// breaker opens.
func TestRememberedBreakersOfOtherThresholdsHaveNoEffect(t *testing.T) {
	never, unused := DefaultThresholds(), DefaultThresholds()
	never.Percent, unused.NotReady = 100, 9
	h := NewAllBreakers(never)
	for _, thresholds := range []Thresholds{never, unused} {
		if h.Restore(thresholds, Scope{Zone: "z"}, "a") {
			t.Errorf("%s: a circuit breaker was opened", thresholds)
		}
	}
	if open := h.Snapshots().Of[never].Open; len(open) > 0 {
		t.Errorf("open: %v", open)
	}
}

// Slots with negative numbers do not exist, the first one does, and machines without a known
// namespace are of none.
func TestReportsEdgesOfWhatIsRead(t *testing.T) {
	own, ok := read(`{"counts":{"/z":{"-1":[1,1],"0":[2,1]}},"unready":{"/z":{"":{"0":1},"n":{"0":0}}},"empty":[-1,0,1]}`)
	if !ok || !slices.Equal(slices.Sorted(maps.Keys(own)), []int{0, 1}) {
		t.Fatalf("read %v, %t, want slots 0 and 1", own, ok)
	}
	if got := own[0][Scope{Zone: "z"}]; got.Count != (Count{Ready: 2, NotReady: 1}) || len(got.Unready) > 0 {
		t.Errorf("read %+v, want no namespaces", got)
	}
	if own, _ := read(`{"counts":{"/z":{"0":[-2,-1]}}}`); own[0][Scope{Zone: "z"}].Count != (Count{}) {
		t.Errorf("read %+v of negative numbers, want none", own)
	}
	counts := Counts{}
	counts.Add(zone1, "n", Count{Ready: 1})
	counts.Add(zone1, "", Count{NotReady: 1})
	if got := counts[zone1]; len(got.Unready) > 0 || got.All["n"] != 1 || got.All[""] != 1 {
		t.Errorf("counted %+v, want no namespaces with machines that are not Ready", got)
	}
}

// A report of exactly the maximum size is kept as it is; and a slot whose only scopes are empty is
// reported as empty.
func TestReportsEdgesOfWhatIsWritten(t *testing.T) {
	if got := write(Own{3: {zone1: {}}}); got != `{"empty":[3]}` {
		t.Errorf("a scope without machines is reported as %s", got)
	}
	of := func(size int) string {
		own := Own{0: {}}
		own[0].Add(Scope{Zone: "z"}, strings.Repeat("n", size), Count{NotReady: 1})
		return write(own)
	}
	around := maxText - len(of(1)) + 1
	if text := of(around); len(text) != maxText {
		t.Errorf("a report of %d bytes has %d", maxText, len(text))
	}
	if text := of(around + 1); len(text) > maxText || strings.Contains(text, "/z") {
		t.Errorf("a report of %d bytes has %d, and its zone", maxText+1, len(text))
	}
}

// Of several reports of a slot without a holder the worst one counts, whichever is read first.
func TestTheWorstOfSeveralReportsCounts(t *testing.T) {
	text := func(ready, notReady int) string {
		return fmt.Sprintf(`{"counts":{"/z1":{"0":[%d,%d]}}}`, ready, notReady)
	}
	for _, texts := range []map[string]string{
		{"a": text(9, 1), "b": text(1, 1), "c": text(5, 0), "d": text(0, 0)},
		{"a": text(1, 1), "b": text(9, 1), "c": text(0, 0), "d": text(5, 0)},
	} {
		for range 20 { // maps have no order
			texts["without the slot"] = "{}"
			total, complete := Sum(nil, ParseReports(texts, []string{"gone"}))
			if got := total[zone1].Count; got != (Count{Ready: 1, NotReady: 1}) || !complete {
				t.Fatalf("%+v, complete %t, want the report with the fewest that are Ready of those with most that are not", got, complete)
			}
		}
	}
	if _, complete := Sum(nil, ParseReports(map[string]string{"a": text(1, 1)}, []string{"gone", "gone"})); complete {
		t.Error("complete without a report of slot 1")
	}
	if _, complete := Sum(Own{1: {}}, ParseReports(nil, []string{"gone", "r"})); complete {
		t.Error("complete without a report of slot 0")
	}
}

// A replica's report of its session has precedence over the one on its Lease, and slots that do not
// exist any more are left out.
func TestReportOfEarlierSlots(t *testing.T) {
	reports := ParseReports(map[string]string{"a": `{"counts":{"/z1":{"0":[1,0]}},"empty":[7]}`}, []string{"", "a"})
	if got, want := Report("a", Own{1: {}}, reports, `{"counts":{"/z1":{"0":[2,0],"2":[1,0]}}}`),
		`{"counts":{"/z1":{"0":[2,0]}},"empty":[1]}`; got != want {
		t.Errorf("reported %s, want %s", got, want)
	}
	reports.holders[0] = "a"
	if got, want := Report("a", Own{1: {}}, reports, ""), `{"counts":{"/z1":{"0":[1,0]}},"empty":[1]}`; got != want {
		t.Errorf("a new session reported %s, want %s", got, want)
	}
}

// A report has the machines of all slots of a namespace, and the namespaces with most of them, with
// any names.
func TestReportsNamespacesOfAllSlots(t *testing.T) {
	own := Own{0: {}, 1: {}}
	for slot := range own {
		for i := range 20 {
			own[slot].Add(zone1, fmt.Sprint("n", i), Count{NotReady: 1})
		}
		own[slot].Add(zone1, "worst", Count{NotReady: 2})
	}
	total, _ := Sum(nil, ParseReports(map[string]string{"r": write(own)}, []string{"r", "r"}))
	if got := total[zone1]; got.NotReady != 44 || got.Unready["worst"] != 4 {
		t.Errorf("%+v, want 4 of 44 in the worst namespace", got)
	}
}

// A zone has the first of the turns that it gets in its namespaces.
func TestAZoneHasTheFirstTurnOfItsNamespaces(t *testing.T) {
	for range 20 { // maps have no order
		if turn := turns(map[Scope]map[string]int{{Zone: "a"}: {"v": 5, "w": 1}, {Zone: "b"}: {"w": 2}}); turn[Scope{Zone: "a"}] != 0 {
			t.Fatalf("turns %v, want a first", turn)
		}
	}
}

// Scopes without a known namespace are the last ones.
func TestTurnsOfScopesWithoutNamespaceAreLast(t *testing.T) {
	turn := turns(map[Scope]map[string]int{{Zone: "a"}: {}, {Zone: "b"}: {"n": 1}, {Zone: "c"}: {"n": 2}})
	if turn[Scope{Zone: "a"}] != math.MaxInt || turn[Scope{Zone: "b"}] != 1 || turn[Scope{Zone: "c"}] != 0 {
		t.Errorf("turns %v, want c, b, and a last", turn)
	}
}

// The same counts have the same report: one that differs is written to the Lease.
func TestReportsAreOrdered(t *testing.T) {
	own, want := Own{}, []string{}
	for slot := range 50 {
		own[slot], want = Counts{}, append(want, fmt.Sprint(slot))
	}
	if got := write(own); got != `{"empty":[`+strings.Join(want, ",")+`]}` {
		t.Errorf("reported %s", got)
	}
}

// Where not even all slots have room, those in which all machines are Ready are reported as empty,
// and the others as they are.
func TestReportsOfManySlotsKeepWhatIsNotReady(t *testing.T) {
	own, slots := Own{}, 2500
	for slot := range slots {
		own[slot] = Counts{zone1: counted(Count{Ready: 1})}
	}
	own[7] = Counts{zone1: counted(Count{NotReady: 1})}
	text := write(own)
	total, complete := Sum(nil, ParseReports(map[string]string{"r": text}, make([]string, slots)))
	if got := total[Scope{}].Count; got != (Count{NotReady: 1}) || !complete || len(text) > maxText {
		t.Errorf("%d bytes with %+v, complete %t, want the one machine that is not Ready", len(text), got, complete)
	}
}

// The namespaces of a zone are those of all slots.
func TestRankedNamespacesOfAllSlotsCount(t *testing.T) {
	for range 10 { // maps have no order
		own := Own{0: {}, 1: {}}
		own[0].Add(Scope{Zone: "a"}, "v", Count{Ready: 1})
		own[1].Add(Scope{Zone: "a"}, "w", Count{Ready: 1})
		own[0].Add(Scope{Zone: "b"}, "v", Count{Ready: 5})
		if got := ranked(own); len(got) != 2 || got[0].Zone != "a" {
			t.Fatalf("zones %v, want a, which two namespaces use, first", got)
		}
	}
}
