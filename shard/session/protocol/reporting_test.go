package protocol

import (
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	member "github.com/machine-controller-fleet/machine-controller-fleet/membership"
)

const ownReport = "fleet-report-r-0"

// own returns the Lease with this replica's report; an empty one if there is none.
func (s *stage) own() *coordinationv1.Lease {
	if l := s.leases[ownReport]; l != nil {
		return l
	}
	return &coordinationv1.Lease{}
}

// weigh has the session learn that slot 0 has a weight, and its machines a count.
func (s *stage) weigh(weight int64, counts string) {
	s.t.Helper()
	s.step(Weighed{Weights: map[int]int64{0: weight}, Counts: &counts})
}

func TestReportedWeights(t *testing.T) {
	weights := func(s *stage) string { return s.own().Annotations[v1alpha1.AnnotationWeights] }
	counts := func(s *stage) string { return s.own().Annotations[v1alpha1.AnnotationCounts] }
	weighed := func(n int64, count string) Weighed {
		return Weighed{Weights: map[int]int64{0: n, 1: 99}, Counts: &count}
	}
	s, _ := stageThatHolds(t)
	s.step(weighed(7, "a"))
	s.run(2 * time.Second)
	if weights(s) != "0:7" || counts(s) != "a" || member.Holder(s.own()) != me {
		t.Errorf("want what is held reported with the next renewal, got %q and %q", weights(s), counts(s))
	}
	s.step(weighed(8, "b"))
	s.run(7 * time.Second)
	if weights(s) != "0:7" || counts(s) != "a" {
		t.Errorf("want nothing new within 10 s, got %q and %q", weights(s), counts(s))
	}
	s.run(4 * time.Second)
	if weights(s) != "0:8" || counts(s) != "b" {
		t.Errorf("want it reported after 10 s, got %q and %q", weights(s), counts(s))
	}
	s.run(20 * time.Second)
	s.step(weighed(8, "c"))
	s.run(2 * time.Second)
	if counts(s) != "c" {
		t.Errorf("want only a new count reported, got %q", counts(s))
	}
	s.step(weighed(8, "c")) // an unchanged report does not delay the next one
	s.run(10 * time.Second)
	s.step(weighed(8, "c"))
	s.step(Weighed{Weights: map[int]int64{0: 9}})
	s.run(2 * time.Second)
	if weights(s) != "0:9" || counts(s) != "c" {
		t.Errorf("want only the weight reported, and the last count unchanged, got %q and %q", weights(s), counts(s))
	}
}

// A renewal is received by all replicas every 2 s: what seldom changes is not on it.
func TestRenewalsDoNotRepeatReports(t *testing.T) {
	s, _ := stageThatHolds(t)
	s.weigh(7, "a")
	s.run(20 * time.Second)
	if notes := s.leases["fleet-session-r-0"].Annotations; notes[v1alpha1.AnnotationWeights] != "" || notes[v1alpha1.AnnotationCounts] != "" {
		t.Errorf("renewals report %v", notes)
	}
	version := s.own().ResourceVersion
	s.run(time.Minute)
	if s.own().ResourceVersion != version {
		t.Error("a report that has not changed was written again")
	}
}

// The last report of the replica is used until this session has counted: it is not replaced by an
// empty one.
func TestReportOfAnEarlierSessionStaysUntilThereIsAnother(t *testing.T) {
	s := newStage(t, 8)
	s.report("r-0", "r-0_zzzzz", "0:3", "before")
	s.slot(0, "", "r-0")
	s.run(20 * time.Second)
	if notes := s.own().Annotations; notes[v1alpha1.AnnotationWeights] != "0:3" || notes[v1alpha1.AnnotationCounts] != "before" {
		t.Fatalf("before anything is known the report is %v", notes)
	}
	s.step(Weighed{Weights: map[int]int64{0: 7}})
	s.run(3 * time.Second)
	if notes := s.own().Annotations; notes[v1alpha1.AnnotationWeights] != "0:7" || notes[v1alpha1.AnnotationCounts] != "before" ||
		member.Holder(s.own()) != me {
		t.Errorf("when weights are known the report is %v, want the last counts to stay", notes)
	}
}

func TestReportThatCannotBeWritten(t *testing.T) {
	requests := func(s *stage, outcome member.Outcome, takesEffect bool) *int {
		count := 0
		s.fate = func(r member.Request) (member.Outcome, bool) {
			if r.Name != ownReport || r.Verb == member.Get {
				return member.Done, true
			}
			count++
			return outcome, takesEffect
		}
		return &count
	}
	t.Run("refused: once in 10 s, and renewals succeed", func(t *testing.T) {
		s, _ := stageThatHolds(t)
		count := requests(s, member.Refused, false)
		s.weigh(7, "a")
		s.run(time.Minute)
		if *count < 5 || *count > 7 {
			t.Errorf("got %d requests in a minute, want 5 to 7", *count)
		}
		s.entitled(0, true)
	})
	t.Run("without an answer, but written: it is read, and not written again", func(t *testing.T) {
		s, _ := stageThatHolds(t)
		count := requests(s, member.Unanswered, true)
		s.weigh(7, "a")
		s.run(20 * time.Second)
		if *count != 1 || s.own().Annotations[v1alpha1.AnnotationCounts] != "a" {
			t.Errorf("got %d writes and %v, want one", *count, s.own().Annotations)
		}
	})
	t.Run("another client has written it: what this session reports replaces that", func(t *testing.T) {
		s, _ := stageThatHolds(t)
		s.weigh(7, "a")
		s.run(12 * time.Second)
		s.blind = true
		stored := s.own().DeepCopy()
		member.Annotate(stored, v1alpha1.AnnotationWeights, "nonsense")
		s.put(stored) // and the watch does not show it
		s.weigh(8, "b")
		s.run(10 * time.Second)
		if notes := s.own().Annotations; notes[v1alpha1.AnnotationWeights] != "0:8" || notes[v1alpha1.AnnotationCounts] != "b" {
			t.Errorf("got %v", notes)
		}
	})
	t.Run("deleted: it is created again", func(t *testing.T) {
		s, _ := stageThatHolds(t)
		s.weigh(7, "a")
		s.run(12 * time.Second)
		s.remove(ownReport)
		s.run(3 * time.Second)
		if s.own().Annotations[v1alpha1.AnnotationCounts] != "a" {
			t.Errorf("got %v", s.own().Annotations)
		}
	})
	t.Run("deleted while the watch does not show it: it is created again", func(t *testing.T) {
		s, _ := stageThatHolds(t)
		s.weigh(7, "a")
		s.run(12 * time.Second)
		delete(s.leases, ownReport)
		s.weigh(8, "b")
		s.run(6 * time.Second)
		if s.own().Annotations[v1alpha1.AnnotationCounts] != "b" {
			t.Errorf("got %v", s.own().Annotations)
		}
	})
}

// A session that may not act writes nothing but its own session Lease.
func TestReportIsNotWrittenAfterTheFence(t *testing.T) {
	s, _ := stageThatHolds(t)
	s.fate = on("fleet-session-r-0", member.Update, member.Unanswered, false)
	s.run(20 * time.Second)
	s.weigh(7, "a")
	s.run(time.Minute)
	if s.leases[ownReport] != nil {
		t.Errorf("a suspended session has written %v", s.own())
	}
}

// A session that begins to lead has read all reports before it acts, and later versions replace
// earlier ones, also after a restore of etcd.
func TestReportsThatAListShows(t *testing.T) {
	s := newStage(t, 8)
	s.report("r-1", another, "0:7", "a")
	s.write("fleet-session-r-1", heldBy(another))
	counts := func() string {
		reported, _ := s.replica.Reports()
		return reported.Counts["r-1"]
	}
	older := s.leases["fleet-report-r-1"].DeepCopy()
	s.report("r-1", another, "0:7", "b")
	s.step(Listed{append(without(s.all(), "fleet-report-r-1"), older)})
	if counts() != "a" {
		t.Errorf("after a list of the watch that shows an older version: got %q, want it", counts())
	}
	s.report("r-1", another, "0:7", "c")
	s.replica.observer.observeList(at(s.now), append(without(s.all(), "fleet-report-r-1"), older), s.replica.steps)
	if counts() != "c" {
		t.Errorf("after a live list that shows an older version than the watch: got %q, want that of the watch", counts())
	}
	s.replica.observer.observeList(at(s.now), without(s.all(), "fleet-report-r-1"), s.replica.steps)
	if counts() != "c" {
		t.Errorf("after a live list without it: got %q, want what the watch shows", counts())
	}
	fresh := newStage(t, 8)
	fresh.replica.observer.observeList(at(s.now), s.all(), fresh.replica.steps)
	if got := fresh.replica.table.reportOf("r-1"); got.counts != "c" || got.weightOf[0] != 7 {
		t.Errorf("after the live list before a session acts: got %+v", got)
	}
	s.step(Listed{without(s.all(), "fleet-report-r-1")})
	if counts() != "" {
		t.Errorf("after a list without it: got %q", counts())
	}
}

// without returns the Leases but the one of that name.
func without(leases []*coordinationv1.Lease, name string) (rest []*coordinationv1.Lease) {
	for _, l := range leases {
		if l.Name != name {
			rest = append(rest, l)
		}
	}
	return rest
}
