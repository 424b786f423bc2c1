package claim

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/machine-controller-fleet/machine-controller-fleet/internal/worlds"
)

var now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func TestDecide(t *testing.T) {
	absent, empty := Lease{}, Lease{Exists: true, Since: now}
	ours := Lease{Exists: true, Holder: "fleet", Since: now}
	since := func(age time.Duration) Lease { return Lease{Exists: true, Holder: "mcm", Since: now.Add(-age)} }
	fleet := Lease{Exists: true, Holder: "second", Since: now.Add(-time.Hour), Duration: 10 * time.Hour}
	both, first, second := [2]bool{true, true}, [2]bool{true, false}, [2]bool{false, true}
	for _, tc := range []struct {
		name   string
		leases [2]Lease
		empty  bool // no roots
		want   Verdict
	}{
		{name: "nobody", leases: [2]Lease{absent, absent}, want: Verdict{Do: Take, Which: both}},
		{name: "given up", leases: [2]Lease{empty, absent}, want: Verdict{Do: Take, Which: both}},
		{name: "ours", leases: [2]Lease{ours, ours}},
		{name: "half of it ours", leases: [2]Lease{ours, absent}, want: Verdict{Do: Take, Which: second}},
		{name: "somebody lives", leases: [2]Lease{since(time.Second), absent}, want: Verdict{Other: "mcm", Wake: 14 * time.Second}},
		{name: "one of two lives", leases: [2]Lease{since(time.Hour), since(0)}, want: Verdict{Other: "mcm", Wake: 15 * time.Second}},
		{name: "somebody has died", leases: [2]Lease{since(15 * time.Second), since(time.Hour)}, want: Verdict{Do: Take, Which: both}},
		{name: "somebody was let in", leases: [2]Lease{ours, since(0)}, want: Verdict{Do: Give, Which: first, Other: "mcm", Wake: 15 * time.Second}},
		{name: "another fleet, which has said once that it stays", leases: [2]Lease{fleet, fleet}, want: Verdict{Other: "second", Wake: 9 * time.Hour}},
		{name: "no root", leases: [2]Lease{absent, absent}, empty: true},
		{name: "no root any more", leases: [2]Lease{ours, ours}, empty: true, want: Verdict{Do: Give, Which: both}},
		{name: "no root, somebody lives", leases: [2]Lease{since(0), ours}, empty: true, want: Verdict{Do: Give, Which: second}},
	} {
		w := World{Now: now, Fleet: "fleet", Leases: tc.leases, Roots: !tc.empty}
		if got := Decide(w); got != tc.want {
			t.Errorf("%s: %+v, want %+v", tc.name, got, tc.want)
		}
	}
}

// Two fleets and MCM, all at it at the same time: whoever is served is alone.
func TestOneIsServed(t *testing.T) {
	worlds.Check(t, 1, func(t *rapid.T) {
		var leases [2]Lease
		clock := now
		for range rapid.IntRange(0, 60).Draw(t, "steps") {
			clock = clock.Add(time.Duration(rapid.IntRange(0, 20).Draw(t, "seconds")) * time.Second)
			who := rapid.SampledFrom([]string{"one", "two"}).Draw(t, "who")
			v := Decide(World{Now: clock, Fleet: who, Leases: leases, Roots: rapid.IntRange(0, 9).Draw(t, "roots") > 0})
			for i := range leases {
				if !v.Which[i] || rapid.IntRange(0, 3).Draw(t, "refused") == 0 {
					continue
				}
				last := leases[i]
				leases[i] = Lease{Exists: true, Since: clock}
				if v.Do == Take {
					if last.Holder != "" && clock.Sub(last.Since) < Unchanged {
						t.Fatalf("%s takes a Lease from %s that has changed %s ago", who, last.Holder, clock.Sub(last.Since))
					}
					leases[i].Holder = who
				}
			}
			if Served("one", leases, false) && Served("two", leases, false) {
				t.Fatal("two are served")
			}
		}
	})
}

func TestAnEndingNamespaceIsServedWithoutLeases(t *testing.T) {
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
			t.Errorf("%s: not served as it should be", tc.name)
		}
	}
}
