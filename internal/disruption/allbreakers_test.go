package disruption

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/worlds"
)

// Circuit breakers with the thresholds of annotations are open in the namespaces that use them
// exactly where they would be if these were the only thresholds, while others are added and
// removed.
func TestThresholdsAreIndependent(t *testing.T) {
	worlds.Check(t, 3, func(t *rapid.T) {
		draw := func(label string) Thresholds {
			percent := rapid.IntRange(1, 100).Draw(t, label)
			return Thresholds{
				NotReady: rapid.IntRange(1, 4).Draw(t, label), Percent: percent, ClosePercent: rapid.IntRange(1, percent).Draw(t, label),
				CloseAfter: time.Duration(rapid.IntRange(0, 3).Draw(t, label)) * time.Minute,
			}
		}
		flags, fixed := draw("flags"), draw("fixed")
		all, alone := NewAllBreakers(flags), map[Thresholds]*Breakers{flags: {}, fixed: {}}
		now := start
		for range rapid.IntRange(1, 30).Draw(t, "steps") {
			all.Use(map[string][]Thresholds{"a": {fixed}, "b": {draw("others"), draw("others")}, "c": {draw("others")}})
			counts := Counts{}
			for _, zone := range []string{"z1", "z2"} {
				for _, namespace := range []string{"a", "b", "c"} {
					counts.Add(Scope{Zone: zone}, namespace, Count{
						Ready: rapid.IntRange(0, 5).Draw(t, "ready"), NotReady: rapid.IntRange(0, 5).Draw(t, "not ready"),
					})
				}
			}
			total, _ := Sum(Own{0: counts}, ParseReports(nil, []string{"r"}))
			complete := rapid.IntRange(0, 9).Draw(t, "complete") > 0
			if rapid.IntRange(0, 5).Draw(t, "remember") == 0 && !fixed.neverOpens() {
				all.Restore(fixed, Scope{Zone: "z1"}, "a")
				alone[fixed].Restore(Scope{Zone: "z1"}, "a")
			}
			all.Step(now, total, complete)
			for thresholds, breakers := range alone {
				breakers.step(now, thresholds, rank(total), complete)
				want := breakers.Snapshot()
				got := all.Snapshots().Of[thresholds].Snapshot
				for _, zone := range []string{"", "z1", "z2"} {
					for _, scope := range []Scope{{Zone: zone}, {Zone: zone, Namespace: "a"}} {
						wantCount, wantOpen := want.Open[scope]
						gotCount, gotOpen := got.Open[scope]
						if gotOpen != wantOpen || gotCount != wantCount || got.Complete != want.Complete {
							t.Fatalf("%s with %s: open %t %+v, want %t %+v", scope, thresholds, gotOpen, gotCount, wantOpen, wantCount)
						}
					}
				}
			}
			now = now.Add(time.Duration(rapid.IntRange(1, 120).Draw(t, "seconds")) * time.Second)
		}
	})
}

// A namespace with many thresholds displaces none of the first ones of others, and those of the
// flags are always in use.
func TestManyThresholdsOfOneNamespace(t *testing.T) {
	flags := DefaultThresholds()
	of := func(n int) Thresholds { t := flags; t.NotReady = n; return t }
	many := make([]Thresholds, 2*MaxThresholds)
	for i := range many {
		many[i] = of(100 + i)
	}
	h := NewAllBreakers(flags)
	h.Use(map[string][]Thresholds{"a": many, "b": {of(10)}, "z": {of(11), flags}})
	h.Step(start, nil, true)
	s := h.Snapshots()
	if len(s.Of) != MaxThresholds+1 {
		t.Errorf("%d thresholds are in use, want %d and those of the flags", len(s.Of), MaxThresholds)
	}
	for name, tc := range map[string]struct {
		all       []Thresholds
		want      Thresholds
		displaced bool
	}{
		"the flags":                        {[]Thresholds{flags}, flags, false},
		"the first of the namespace":       {[]Thresholds{many[0], flags}, many[0], false},
		"the last that fits":               {[]Thresholds{many[MaxThresholds-3], flags}, many[MaxThresholds-3], false},
		"the first that does not fit":      {[]Thresholds{many[MaxThresholds-2], flags}, flags, true},
		"it does not fit, its Namespace's": {[]Thresholds{many[len(many)-1], many[0], flags}, many[0], true},
		"of another namespace":             {[]Thresholds{of(10), flags}, of(10), false},
		"of the last namespace":            {[]Thresholds{of(11), flags}, of(11), false},
	} {
		got, _, displaced, counted := s.For(tc.all)
		if got != tc.want || displaced != tc.displaced || !counted {
			t.Errorf("%s: not-ready=%d, displaced %t, counted %t; want not-ready=%d, %t",
				name, got.NotReady, displaced, counted, tc.want.NotReady, tc.displaced)
		}
	}
	if got, is, _, counted := s.For([]Thresholds{of(12), flags}); counted || got != of(12) || is.Complete {
		t.Errorf("thresholds that were not counted with yet: %s, counted %t", got, counted)
	}
	h.Use(map[string][]Thresholds{"b": {of(10)}})
	if _, _, displaced, counted := h.Snapshots().For([]Thresholds{many[len(many)-1], flags}); displaced || counted {
		t.Errorf("there is room again: displaced %t, counted %t", displaced, counted)
	}
}

// If several circuit breakers are about to close, the first of all thresholds is the next.
func TestTheFirstOfAllBreakersToCloseIsReturned(t *testing.T) {
	flags := DefaultThresholds()
	soon, late := flags, flags
	soon.CloseAfter, late.CloseAfter = time.Minute, time.Hour
	for range 20 { // maps have no order
		h := NewAllBreakers(flags)
		h.Use(map[string][]Thresholds{"a": {late, soon}})
		var got []time.Duration
		for _, n := range []Count{{NotReady: 5}, {Ready: 5}} {
			counts := Counts{}
			counts.Add(Scope{}, "a", n)
			total, _ := Sum(Own{0: counts}, ParseReports(nil, []string{"r"}))
			again := h.Step(start, total, true)
			got = append(got, max(again.Sub(start), 0))
		}
		if want := []time.Duration{0, time.Minute}; !slices.Equal(got, want) {
			t.Fatalf("again after %v, want %v", got, want)
		}
	}
}

// What Snapshots returned does not change with what follows.
func TestSnapshotsAreImmutable(t *testing.T) {
	own := DefaultThresholds()
	own.NotReady = 1
	h := NewAllBreakers(DefaultThresholds())
	h.Use(map[string][]Thresholds{"a": {own}})
	before := h.Snapshots()
	text := fmt.Sprint(before)
	h.Use(map[string][]Thresholds{"b": {own}})
	counts := Counts{}
	counts.Add(Scope{}, "b", Count{NotReady: 5})
	h.Step(start, map[Scope]Tally{{}: counts[Scope{}]}, true)
	if diff := cmp.Diff(text, fmt.Sprint(before)); diff != "" {
		t.Error(diff)
	}
}
