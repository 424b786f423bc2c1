package protocol

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	coordinationv1 "k8s.io/api/coordination/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	member "github.com/machine-controller-fleet/machine-controller-fleet/membership"
)

func TestCountsAreReported(t *testing.T) {
	s, _ := stageThatHolds(t)
	s.slot(1, another, "r-1")
	counts := func() string { return s.own().Annotations[v1alpha1.AnnotationCounts] }
	first, second := "first", "second"
	s.step(Weighed{Weights: map[int]int64{0: 1}})
	s.run(3 * time.Second)
	if counts() != "" {
		t.Fatalf("reported %q before anything was counted", counts())
	}
	s.run(10 * time.Second)
	s.step(Weighed{Weights: map[int]int64{0: 1}, Counts: &first})
	s.run(3 * time.Second)
	if counts() != first {
		t.Fatalf("reported %q, want %q", counts(), first)
	}
	s.step(Weighed{Weights: map[int]int64{0: 1}, Counts: &second})
	s.run(4 * time.Second)
	if counts() != first {
		t.Error("reported again after less than 10 s")
	}
	s.run(10 * time.Second)
	if counts() != second {
		t.Errorf("reported %q, want %q", counts(), second)
	}
	s.write("fleet-session-r-1", func(l *coordinationv1.Lease) { *l = *emptied(l) }) // an absent one, with its last report
	s.report("r-1", another, "", "last")
	s.write("fleet-session-r-2", func(l *coordinationv1.Lease) { // an earlier version
		heldBy("r-2_ccccc")(l)
		member.Annotate(l, v1alpha1.AnnotationCounts, "earlier")
	})
	s.report("r-3", "r-3_ddddd", "", "without a session Lease")
	reported, ok := s.replica.Reports()
	want := Reports{
		Counts:  map[string]string{"r-0": second, "r-1": "last", "r-2": "earlier"},
		Holders: []string{"r-0", "r-1", "", "", "", "", "", ""},
	}
	if diff := cmp.Diff(want, reported); diff != "" || !ok {
		t.Errorf("reports (-want +got), %v:\n%s", ok, diff)
	}
}

func TestSessionThatMayNotActReportsNothing(t *testing.T) {
	s, _ := stageThatHolds(t)
	s.fate = on("fleet-session-r-0", member.Update, member.Unanswered, false)
	s.run(20 * time.Second)
	if _, ok := s.replica.Reports(); ok {
		t.Error("want no reports after the fence, since they may be outdated")
	}
}
