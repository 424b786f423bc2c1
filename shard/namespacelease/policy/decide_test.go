package policy

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/worlds"
)

var now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func TestDecide(t *testing.T) {
	absent, empty := Lease{}, Lease{Exists: true, Since: now}
	ours := Lease{Exists: true, Holder: "fleet", Since: now}
	since := func(age time.Duration) Lease { return Lease{Exists: true, Holder: "mcm", Since: now.Add(-age)} }
	fleet := Lease{Exists: true, Holder: "second", Since: now.Add(-time.Hour), Duration: 10 * time.Hour}
	both, first, second := [2]bool{true, true}, [2]bool{true, false}, [2]bool{false, true}
	for _, tc := range []struct {
		name       string
		leases     [2]Lease
		roots      Roots
		mayRelease bool
		selection  Selection
		busy       bool
		want       Verdict
	}{
		{name: "no Leases", leases: [2]Lease{absent, absent}, roots: Some, want: Verdict{Do: Acquire, Which: both}},
		{name: "given up", leases: [2]Lease{empty, empty}, roots: Some, want: Verdict{Do: Acquire, Which: both}},
		{name: "given up, one deleted", leases: [2]Lease{empty, absent}, roots: Some, want: Verdict{Do: Acquire, Which: both}},
		{name: "roots are not known", leases: [2]Lease{empty, empty}, want: Verdict{Do: ListRoots}},
		{name: "served", leases: [2]Lease{ours, ours}},
		{name: "served, by the replica that may release", leases: [2]Lease{ours, ours}, mayRelease: true, want: Verdict{Do: ListRoots}},
		{name: "served, with roots", leases: [2]Lease{ours, ours}, roots: Some, mayRelease: true, want: Verdict{Wake: 10 * time.Minute}},
		{name: "half taken", leases: [2]Lease{ours, absent}, roots: Some, want: Verdict{Do: Acquire, Which: second}},
		{name: "another manager lives", leases: [2]Lease{since(time.Second), absent}, want: Verdict{Other: "mcm", Wake: 14 * time.Second}},
		{name: "one of two lives", leases: [2]Lease{since(time.Hour), since(0)}, want: Verdict{Other: "mcm", Wake: 15 * time.Second}},
		{name: "both live", leases: [2]Lease{since(0), since(5 * time.Second)}, want: Verdict{Other: "mcm", Wake: 15 * time.Second}},
		{
			name: "another manager has died", leases: [2]Lease{since(15 * time.Second), since(time.Hour)}, roots: Some,
			want: Verdict{Do: Acquire, Which: both},
		},
		{name: "another manager has died, roots are not known", leases: [2]Lease{since(15 * time.Second), empty}, want: Verdict{Do: ListRoots}},
		{name: "another manager holds the second Lease", leases: [2]Lease{ours, since(0)}, mayRelease: true, want: Verdict{
			Do: Release, Which: first, Other: "mcm", Wake: 15 * time.Second,
		}},
		{
			name: "another manager holds the second Lease, and this replica may not release", leases: [2]Lease{ours, since(0)},
			want: Verdict{Other: "mcm", Wake: 15 * time.Second},
		},
		{name: "another fleet, which renews nothing", leases: [2]Lease{fleet, fleet}, want: Verdict{Other: "second", Wake: 9 * time.Hour}},
		{name: "no root", leases: [2]Lease{absent, absent}, roots: None, mayRelease: true},
		{name: "no root any more", leases: [2]Lease{ours, ours}, roots: None, mayRelease: true, want: Verdict{Do: Release, Which: both}},
		{
			name: "no root any more, half taken", leases: [2]Lease{empty, ours}, roots: None, mayRelease: true,
			want: Verdict{Do: Release, Which: second},
		},
		{name: "no root any more, and this replica may not release", leases: [2]Lease{empty, ours}, roots: None},
		{name: "not selected", leases: [2]Lease{ours, ours}, mayRelease: true, selection: NotSelected, want: Verdict{Do: Release, Which: both}},
		{
			name: "not selected, half released", leases: [2]Lease{empty, ours}, mayRelease: true, selection: NotSelected,
			want: Verdict{Do: Release, Which: second},
		},
		{name: "not selected, work runs", leases: [2]Lease{ours, ours}, mayRelease: true, selection: NotSelected, busy: true},
		{name: "not selected, and this replica may not release", leases: [2]Lease{ours, ours}, selection: NotSelected},
		{
			name: "not selected, no manager has it", leases: [2]Lease{empty, absent}, roots: Some, selection: NotSelected,
			want: Verdict{Unheld: true},
		},
		{
			name: "not selected, another fleet has it", leases: [2]Lease{fleet, fleet}, selection: NotSelected,
			want: Verdict{Other: "second", Wake: 9 * time.Hour},
		},
		{name: "selection is not known, free", leases: [2]Lease{empty, empty}, roots: Some, mayRelease: true, selection: Undetermined},
		{
			name: "selection is not known, served", leases: [2]Lease{ours, ours}, roots: Some, mayRelease: true, selection: Undetermined,
			want: Verdict{Wake: 10 * time.Minute},
		},
	} {
		w := World{
			Now: now, Fleet: "fleet", Leases: tc.leases, Roots: tc.roots, MayRelease: tc.mayRelease, Selection: tc.selection, Busy: tc.busy,
		}
		if got := Decide(w); got != tc.want {
			t.Errorf("%s: %+v, want %+v", tc.name, got, tc.want)
		}
	}
}

// The consequences of a decision, for all states of the two Leases, all deciding replicas and all
// knowledge of roots.
func TestEveryCombinationEndsWithTheLeasesAcquiredOrReleased(t *testing.T) {
	states := map[string]Lease{
		"absent": {}, "empty": {Exists: true, Since: now}, "ours": {Exists: true, Holder: "fleet", Since: now.Add(-time.Hour)},
		"live":    {Exists: true, Holder: "mcm", Since: now.Add(-5 * time.Second)},
		"expired": {Exists: true, Holder: "mcm", Since: now.Add(-15 * time.Second)},
	}
	for a, first := range states {
		for b, second := range states {
			for _, roots := range []Roots{Unknown, None, Some} {
				for _, mayRelease := range []bool{false, true} {
					name := fmt.Sprintf("%s, %s, roots %d, may give %t", a, b, roots, mayRelease)
					v := Decide(World{Now: now, Fleet: "fleet", Leases: [2]Lease{first, second}, Roots: roots, MayRelease: mayRelease})
					held := [2]bool{a == "ours", b == "ours"} // after the verdict is executed
					for i, concerned := range v.Which {
						if concerned {
							held[i] = v.Do == Acquire
						}
					}
					lives, served, looks := a == "live" || b == "live", a == "ours" && b == "ours", v.Do == ListRoots
					if (v.Other == "mcm") != lives || (v.Wake == 10*time.Second) != lives {
						t.Errorf("%s: kept out by %q for %s", name, v.Other, v.Wake)
					}
					if want := roots == Unknown && !lives && (!served || mayRelease); looks != want {
						t.Errorf("%s: looks for roots: %t, want %t", name, looks, want)
					}
					if (v.Do == Acquire || v.Do == Release) != (v.Which != [2]bool{}) {
						t.Errorf("%s: %+v has an action without a Lease, or a Lease without an action", name, v)
					}
					switch {
					case looks:
					case mayRelease && (lives || roots == None) && held != [2]bool{}:
						t.Errorf("%s: %v stay taken, want both given up", name, held)
					case !lives && roots == Some && held != [2]bool{true, true}:
						t.Errorf("%s: %v are taken, want both", name, held)
					case v.Do == Acquire && (lives || roots != Some):
						t.Errorf("%s: taken although another manager lives, or without roots", name)
					case v.Do == Release && !mayRelease:
						t.Errorf("%s: given up by a replica that may not", name)
					}
				}
			}
		}
	}
}

// Two fleets and MCM decide at the same time: at most one manager serves the namespace.
func TestAtMostOneManagerServesANamespace(t *testing.T) {
	worlds.Check(t, 1, func(t *rapid.T) {
		var leases [2]Lease
		clock := now
		for range rapid.IntRange(0, 60).Draw(t, "steps") {
			clock = clock.Add(time.Duration(rapid.IntRange(0, 20).Draw(t, "seconds")) * time.Second)
			who := rapid.SampledFrom([]string{"one", "two"}).Draw(t, "who")
			roots := rapid.SampledFrom([]Roots{None, Some, Some, Some, Some}).Draw(t, "roots")
			v := Decide(World{Now: clock, Fleet: who, Leases: leases, Roots: roots, MayRelease: rapid.Bool().Draw(t, "may give")})
			for i := range leases {
				if !v.Which[i] || rapid.IntRange(0, 3).Draw(t, "refused") == 0 {
					continue
				}
				last := leases[i]
				leases[i] = Lease{Exists: true, Since: clock}
				if v.Do == Acquire {
					if last.Holder != "" && clock.Sub(last.Since) < Unchanged {
						t.Fatalf("%s takes a Lease from %s that has changed %s ago", who, last.Holder, clock.Sub(last.Since))
					}
					leases[i].Holder = who
				}
			}
			if Served("one", leases, false) && Served("two", leases, false) {
				t.Fatal("both fleets serve the namespace")
			}
		}
	})
}

func TestTerminatingNamespaceIsServedWithoutLeases(t *testing.T) {
	ours, other, empty := Lease{Exists: true, Holder: "fleet"}, Lease{Exists: true, Holder: "other"}, Lease{Exists: true}
	for _, tc := range []struct {
		name         string
		leases       [2]Lease
		ends, stands bool
	}{
		{"both gone", [2]Lease{}, true, false},
		{"one gone", [2]Lease{ours, {}}, true, false},
		{"both ours", [2]Lease{ours, ours}, true, true},
		{"another's", [2]Lease{other, {}}, false, false},
		{"nobody's", [2]Lease{empty, {}}, false, false},
	} {
		if Served("fleet", tc.leases, true) != tc.ends || Served("fleet", tc.leases, false) != tc.stands {
			t.Errorf("%s: Served returned the wrong result", tc.name)
		}
	}
}
