package disruption

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/worlds"
)

var (
	zone1 = Scope{Zone: "z1"}
	zone2 = Scope{Target: "t", Zone: "a/b"}
)

// reported returns the fields of a Tally that are reported to other replicas.
var reported = cmpopts.IgnoreFields(Tally{}, "All")

// counted returns a count of machines whose namespaces are not known.
func counted(n Count) Tally { return Tally{Count: n, Unready: map[string]int{}} }

func TestReportsAreParsed(t *testing.T) {
	own := Own{0: {}, 3: {}, 7: {}}
	own[3].Add(zone1, "n", Count{Ready: 5, NotReady: 1})
	own[3].Add(zone2, "n", Count{NotReady: 1})
	own[3].Add(zone2, "m", Count{NotReady: 1})
	own[7].Add(Scope{}, "n", Count{Ready: 1})
	text := Report("r", own, Reports{}, "")
	want := `{"counts":{"/":{"7":[1,0]},"/z1":{"3":[5,1]},"t/a/b":{"3":[0,2]}},"unready":{"/z1":{"n":{"3":1}},"t/a/b":{"m":{"3":1},"n":{"3":1}}},"empty":[0]}`
	if text != want {
		t.Errorf("reported %s, want %s", text, want)
	}
	got, ok := read(text)
	if diff := cmp.Diff(own, got, reported); diff != "" || !ok {
		t.Errorf("parsed (-want +got), %v:\n%s", ok, diff)
	}
	for _, nonsense := range []string{"", "3:1", "[]", `{"counts":{"/z1":{"x":[1,2]}}}`} {
		if _, ok := read(nonsense); ok {
			t.Errorf("%q was accepted", nonsense)
		}
	}
}

// A slot counts by the report of its holder; until the holder has counted it, by the worst report;
// and not at all without a report.
func TestWhoseReportCounts(t *testing.T) {
	word := func(ready, notReady int) string {
		return fmt.Sprintf(`{"counts":{"/z1":{"0":[%d,%d]}}}`, ready, notReady)
	}
	for _, tc := range []struct {
		name     string
		holder   string
		texts    map[string]string
		own      Own
		want     Count
		complete bool
	}{
		{name: "no replica has counted", holder: "a", texts: map[string]string{"a": `{"empty":[1]}`}},
		{
			name: "the holder has counted", holder: "a", texts: map[string]string{"a": word(4, 1), "b": word(0, 9)}, want: Count{4, 1},
			complete: true,
		},
		{
			name: "the holder has counted no machines", holder: "a", texts: map[string]string{"a": `{"empty":[0]}`, "b": word(0, 9)}, complete: true,
		},
		{
			name: "the holder has not counted yet", holder: "a", texts: map[string]string{"a": "{}", "b": word(4, 1), "c": word(1, 2)},
			want: Count{1, 2}, complete: true,
		},
		{name: "no replica holds it", texts: map[string]string{"b": word(4, 1), "c": word(3, 1)}, want: Count{3, 1}, complete: true},
		{
			name: "this replica holds it", holder: "a", texts: map[string]string{"a": word(4, 1)}, own: Own{0: {zone1: counted(Count{Ready: 5})}},
			want: Count{5, 0}, complete: true,
		},
		{name: "the report is invalid", holder: "a", texts: map[string]string{"a": "nonsense"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			total, complete := Sum(tc.own, ParseReports(tc.texts, []string{tc.holder}))
			if total[zone1].Count != tc.want || total[Scope{}].Count != tc.want || complete != tc.complete {
				t.Errorf("%+v and complete %v, want %+v and %v", total, complete, tc.want, tc.complete)
			}
		})
	}
	if _, complete := Sum(nil, Reports{}); complete {
		t.Error("complete although the number of slots is not known")
	}
}

// The counts of a replica are kept when it loses the slot or ends, until the slot's next holder has
// counted.
func TestLastReportCounts(t *testing.T) {
	first := Report("a", Own{0: {zone1: counted(Count{NotReady: 5})}, 1: {}}, ParseReports(nil, []string{"a", "a"}), "")
	anew := ParseReports(map[string]string{"a": first}, []string{"", "a"})
	if got := Report("a", Own{1: {}}, anew, ""); got != first {
		t.Errorf("a new session reports %s, want %s", got, first)
	}
	if got := Report("a", Own{1: {}}, ParseReports(map[string]string{"b": "{}"}, []string{"b", "a"}), first); got != first {
		t.Errorf("before the next holder has counted it reports %s, want %s", got, first)
	}
	after := ParseReports(map[string]string{"b": `{"empty":[0]}`}, []string{"b", "a"})
	if got := Report("a", Own{1: {}}, after, first); got != `{"empty":[1]}` {
		t.Errorf("after the next holder has counted it reports %s", got)
	}
}

// A Lease must not become too large to be renewed, and no tenant can prevent the machines of others
// from being counted by having many zones or namespaces.
func TestReportIsCutToItsMaximum(t *testing.T) {
	fill := func(n int, count Count) (own Own, all int) {
		own = Own{}
		for slot := range n {
			own[slot] = Counts{}
			own[slot].Add(Scope{Target: strings.Repeat("t", 40), Zone: fmt.Sprint("z", slot)}, fmt.Sprint(strings.Repeat("n", 50), slot), count)
			all += count.NotReady
		}
		return own, all
	}
	cluster := Scope{Target: strings.Repeat("t", 40)}
	for name, count := range map[string]Count{"all is well": {Ready: 1}, "nothing is well": {Ready: 1, NotReady: 1}} {
		for _, n := range []int{50, 1000} {
			own, notReady := fill(n, count)
			text := write(own)
			total, complete := Sum(nil, ParseReports(map[string]string{"r": text}, make([]string, n)))
			if len(text) > maxText || !complete || total[cluster].NotReady != notReady || total[cluster].Ready != n {
				t.Errorf("%s in %d slots: %d characters, complete %v, %+v", name, n, len(text), complete, total[cluster].Count)
			}
		}
	}
	own, _ := fill(5000, Count{Ready: 1, NotReady: 1})
	if text := write(own); len(text) > maxText {
		t.Errorf("%d characters of 5000 slots", len(text))
	}
}

// The report has the namespaces with most machines that are not Ready, and of each namespace the
// zones with most of its machines.
func TestReportNamesTheWorstNamespaces(t *testing.T) {
	own := Own{0: {}}
	for i := range 300 {
		own[0].Add(Scope{Zone: fmt.Sprint(strings.Repeat("z", 60), i)}, fmt.Sprint("small", i), Count{NotReady: 1})
	}
	own[0].Add(zone1, "large", Count{NotReady: 9})
	own[0].Add(Scope{}, "large", Count{NotReady: 9})
	total, _ := Sum(nil, ParseReports(map[string]string{"r": write(own)}, []string{"r"}))
	if got := total[zone1]; got.NotReady != 9 || got.Unready["large"] != 9 {
		t.Errorf("%+v of the zone with most machines", got)
	}
	if got := total[Scope{}]; got.NotReady != 318 || got.Unready["large"] != 18 || rankOne(got).worst("") != "large" {
		t.Errorf("%+v of the cluster", got)
	}
}

// A tenant can have any number of zones, with any number of machines in each: its MachineClasses
// name them.
func TestZonesOfOneTenantDoNotDisplaceThoseOfOthers(t *testing.T) {
	for name, tc := range map[string]struct {
		victims []string
		dark    bool
	}{
		"one other tenant":                               {[]string{"v"}, false},
		"one other tenant, and a zone is not Ready":      {[]string{"v"}, true},
		"several other tenants":                          {[]string{"v", "w"}, false},
		"several other tenants, and a zone is not Ready": {[]string{"v", "w"}, true},
	} {
		t.Run(name, func(t *testing.T) {
			own := Own{}
			for slot := range 40 {
				own[slot] = Counts{}
				for i := range 300 {
					own[slot].Add(Scope{Zone: fmt.Sprint(strings.Repeat("a", 60), i)}, "tenant", Count{NotReady: 1000})
				}
			}
			for _, victim := range tc.victims {
				is := Count{Ready: 7}
				if tc.dark {
					is = Count{NotReady: 7}
				}
				own[0].Add(zone1, victim, is)
				own[0].Add(Scope{Zone: "z2"}, victim, Count{Ready: 6})
			}
			total, complete := Sum(nil, ParseReports(map[string]string{"r": write(own)}, slices.Repeat([]string{"r"}, 40)))
			if _, counted := total[Scope{Zone: "z2"}]; !counted || !complete {
				t.Errorf("zone z2 is missing (complete %v): %v", complete, slices.Collect(maps.Keys(total)))
			}
			if _, counted := total[zone1]; !counted {
				t.Errorf("zone z1 is missing: %v", slices.Collect(maps.Keys(total)))
			}
		})
	}
}

func TestOrderInWhichScopesKeepTheirZones(t *testing.T) {
	own := Own{0: {}, 1: {}}
	for zone, machines := range map[string]map[string]Count{
		"a": {"v": {Ready: 2}, "w": {Ready: 1}},
		"b": {"v": {Ready: 1}},
		"c": {"w": {NotReady: 1}},
		"k": {"tenant": {NotReady: 500}},
		"l": {"tenant": {NotReady: 400}},
		"m": {"tenant": {NotReady: 300}},
		"":  {"v": {Ready: 1000}},
	} {
		for namespace, n := range machines {
			own[0].Add(Scope{Zone: zone}, namespace, n)
			own[1].Add(Scope{Zone: zone}, namespace, n)
		}
	}
	var got string
	for _, scope := range ranked(own) {
		got += scope.Zone
	}
	// First a, of two namespaces, and k; then the second zone of each: b, with Ready machines, l, c;
	// and m.
	if want := "akblcm"; got != want {
		t.Errorf("zones in the order %s, want %s", got, want)
	}
}

// fleet is a few replicas that move slots and report their counts, while the machines do not
// change.
type fleet struct {
	*rapid.T
	truth   Own
	holders []string
	open    map[int]bool      // counted by the session of its holder
	texts   map[string]string // reports on the Leases
	last    map[string]string // last report of each session
}

func (f *fleet) own(replica string) Own {
	own := Own{}
	for slot, holder := range f.holders {
		if holder == replica && f.open[slot] {
			own[slot] = f.truth[slot]
		}
	}
	return own
}

// While no machine changes, the sum of every replica is correct or known to be incomplete,
// whichever replica holds which slot. Once there is a report of every slot, it stays complete.
func TestSumsAreCorrectOrIncomplete(t *testing.T) {
	worlds.Check(t, 1, func(t *rapid.T) {
		f := &fleet{T: t, truth: Own{}, open: map[int]bool{}, texts: map[string]string{}, last: map[string]string{}}
		slots, replicas := rapid.IntRange(1, 5).Draw(t, "slots"), []string{"a", "b", "c"}
		want := map[Scope]Tally{}
		for slot := range slots {
			counts := Counts{}
			for _, scope := range []Scope{zone1, zone2, {}} {
				n := Count{Ready: rapid.IntRange(0, 3).Draw(t, "ready"), NotReady: rapid.IntRange(0, 3).Draw(t, "not ready")}
				if n == (Count{}) {
					continue
				}
				counts.Add(scope, rapid.SampledFrom([]string{"n", "m"}).Draw(t, "namespace"), n)
				want[scope.cluster()] = want[scope.cluster()].with(counts[scope])
				if scope.Zone != "" {
					want[scope] = want[scope].with(counts[scope])
				}
			}
			f.truth[slot] = counts
			f.holders = append(f.holders, "")
		}
		was := false
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			f.step(slots, rapid.SampledFrom(replicas).Draw(t, "replica"))
			for _, replica := range replicas {
				total, complete := Sum(f.own(replica), ParseReports(f.texts, f.holders))
				if diff := cmp.Diff(want, total, reported); complete && diff != "" {
					t.Fatalf("%s sums up (-want +got):\n%s\ntexts %v, holders %v", replica, diff, f.texts, f.holders)
				}
			}
			_, complete := Sum(nil, ParseReports(f.texts, f.holders))
			if was && !complete {
				t.Fatalf("a report was lost: texts %v, holders %v", f.texts, f.holders)
			}
			was = complete
		}
	})
}

func (f *fleet) step(slots int, replica string) {
	slot := rapid.IntRange(0, slots-1).Draw(f.T, "slot")
	switch rapid.IntRange(0, 5).Draw(f.T, "event") {
	case 0: // another holder, or none; the old one stops at once
		f.holders[slot] = rapid.SampledFrom([]string{"", "a", "b", "c"}).Draw(f.T, "holder")
		delete(f.open, slot)
	case 1, 2:
		if f.holders[slot] != "" {
			f.open[slot] = true
		}
	case 3: // a new session of the replica
		delete(f.last, replica)
		for s, holder := range f.holders {
			if holder == replica {
				delete(f.open, s)
			}
		}
	default:
		f.last[replica] = Report(replica, f.own(replica), ParseReports(maps.Clone(f.texts), f.holders), f.last[replica])
		f.texts[replica] = f.last[replica]
	}
}

// Numbers in a Lease that another client has written are bounded: with an overflow, all machines
// would seem Ready.
func TestCountsThatOverflow(t *testing.T) {
	texts, holders := map[string]string{}, []string{}
	for slot := range 4 {
		replica := fmt.Sprint("r", slot)
		texts[replica] = fmt.Sprintf(`{"counts":{"/z1":{"%d":[%d,%d]}},"unready":{"/z1":{"n":{"%d":%d}}}}`,
			slot, math.MaxInt64, math.MaxInt64, slot, math.MaxInt64)
		holders = append(holders, replica)
	}
	total, complete := Sum(nil, ParseReports(texts, holders))
	want := Count{Ready: 4 * maxCount, NotReady: 4 * maxCount}
	if got := total[zone1]; got.Count != want || got.Unready["n"] != want.NotReady || !complete {
		t.Errorf("%+v and complete %v, want %+v", got, complete, want)
	}
}

func FuzzParseReports(f *testing.F) {
	for _, seed := range []string{
		"", "{}", `{"counts":{"/z1":{"3":[5,1]}},"empty":[0]}`, `{"empty":[-1]}`, `{"counts":{"z":{"-3":[-5,1]}}}`, "[]", "null",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		total, _ := Sum(nil, ParseReports(map[string]string{"r": text}, []string{"r", ""}))
		for scope, n := range total {
			if n.Ready < 0 || n.NotReady < 0 {
				t.Errorf("%q: %+v in %s", text, n, scope)
			}
		}
	})
}
