package protocol

import (
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	member "github.com/machine-controller-fleet/machine-controller-fleet/membership"
	"github.com/machine-controller-fleet/machine-controller-fleet/shard/assignment"
)

// fit returns a change of the report on a session Lease.
func fit(f member.Fitness) func(*coordinationv1.Lease) {
	return func(l *coordinationv1.Lease) {
		heldBy(another)(l)
		member.Annotate(l, v1alpha1.AnnotationFitness, f.String())
	}
}

func serving(service member.Service) member.Fitness {
	f := member.Fitness{Acts: true, Observes: true, Serves: map[string]member.Service{DefaultTarget: service}}
	if service == member.Failing {
		f.Reason = "a slot did not open"
	}
	return f
}

// twoReplicas returns a leader of 8 old slots, some of which are assigned to another replica, which
// reports a fitness.
func twoReplicas(t *testing.T, others int, report member.Fitness) *stage {
	t.Helper()
	s := newStage(t, 8)
	s.live = []string{another}
	s.write("fleet-session-r-1", fit(report))
	for slot := range 8 {
		if slot < others {
			s.slot(slot, another, "r-1")
		} else {
			s.slot(slot, "", "r-0")
		}
	}
	s.step(Elected{})
	s.run(17 * time.Second)
	return s
}

// assigned counts the slots that are assigned to the other replica.
func (s *stage) assigned() (slots int) {
	for slot := range 8 {
		if s.assignee(slot) == "r-1" {
			slots++
		}
	}
	return slots
}

func TestSlotsOfAnUnfitReplicaAreAssignedToOthers(t *testing.T) {
	for name, test := range map[string]struct {
		report member.Fitness
		after  time.Duration
	}{
		"it does not observe": {member.Fitness{Acts: true, Reason: "blind"}, 2 * time.Second},
		"it fails to serve":   {serving(member.Failing), 2 * time.Second},
		"it does not act":     {member.Fitness{Observes: true, Reason: "cannot list"}, 17 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			s := twoReplicas(t, 4, serving(member.Serving))
			if slots := s.assigned(); slots != 4 {
				t.Fatalf("%d slots are assigned to a fit replica, want its 4", slots)
			}
			s.write("fleet-session-r-1", fit(test.report))
			if test.after > 10*time.Second {
				s.run(test.after - 3*time.Second)
				if slots := s.assigned(); slots != 4 {
					t.Fatalf("%d slots are assigned to it, want its 4 for a while", slots)
				}
			}
			s.run(test.after)
			if slots := s.assigned(); slots != 0 {
				t.Errorf("%d slots are assigned to it still", slots)
			}
		})
	}
}

func TestAReplicaWithAnInvalidReportCountsAsUnfit(t *testing.T) {
	s := twoReplicas(t, 4, serving(member.Serving))
	s.write("fleet-session-r-1", func(l *coordinationv1.Lease) {
		member.Annotate(l, v1alpha1.AnnotationFitness, "{")
	})
	s.run(20 * time.Second)
	if slots := s.assigned(); slots != 0 {
		t.Errorf("%d slots are assigned to it", slots)
	}
}

func TestWithoutFitReplicasSlotsStay(t *testing.T) {
	s := twoReplicas(t, 4, serving(member.Serving))
	s.step(Deposed{})
	s.write("fleet-session-r-1", fit(serving(member.Failing)))
	s.step(Watched{Broken: map[string]string{DefaultTarget: "the target cluster is away"}})
	s.step(Elected{})
	s.run(20 * time.Minute)
	if slots := s.assigned(); slots != 4 {
		t.Errorf("%d slots are assigned to the other, want its 4", slots)
	}
}

func TestANewReplicaGetsOneSlotFirst(t *testing.T) {
	s := twoReplicas(t, 0, serving(member.Untried))
	if slots := s.assigned(); slots != 1 {
		t.Fatalf("%d slots are assigned to a replica that has not served any, want 1", slots)
	}
	for slot := range 8 {
		if s.assignee(slot) == "r-1" {
			s.write(member.SlotLeaseName("fleet", slot, 8), heldBy(another))
		}
	}
	s.run(10 * time.Second)
	if slots := s.assigned(); slots != 1 {
		t.Fatalf("%d slots are assigned to it before its first one is open, want 1", slots)
	}
	s.write("fleet-session-r-1", fit(serving(member.Serving)))
	s.run(3 * time.Second)
	if slots := s.assigned(); slots < 3 {
		t.Errorf("%d slots are assigned to it, want its share", slots)
	}
}

func TestAReplicaWithoutAReportCountsAsFit(t *testing.T) {
	s := newStage(t, 8)
	s.live = []string{another}
	s.write("fleet-session-r-1", heldBy(another))
	for slot := range 8 {
		s.slot(slot, "", "r-0")
	}
	s.step(Elected{})
	s.run(17 * time.Second)
	if slots := s.assigned(); slots != 4 {
		t.Errorf("%d slots are assigned to it, want half", slots)
	}
}

// A replica renews its Lease, reports that it is fit, and takes nothing. Slots wait for it one at a
// time, for 5 s each, and less often each time.
func TestAReplicaThatAcquiresNothingIsTriedLessAndLessOften(t *testing.T) {
	s := twoReplicas(t, 0, serving(member.Serving))
	unowned := time.Duration(0)
	const tick = 100 * time.Millisecond
	for range 20 * time.Minute / tick {
		s.run(tick)
		for slot := range 8 {
			if member.Holder(s.leases[member.SlotLeaseName("fleet", slot, 8)]) == "" {
				unowned += tick
			}
		}
	}
	// Half of the slots once, before it has failed; then one after 1, 2, 4 and 8 minutes.
	if most := 4*8*time.Second + 4*8*time.Second; unowned > most {
		t.Errorf("slots had no holder for %v in 20 min, want at most %v", unowned, most)
	}
	if unowned == 0 {
		t.Error("want another slot assigned to it at some time, got none")
	}
}

func TestAReplicaThatAcquiresASlotAgainGetsItsShare(t *testing.T) {
	s := twoReplicas(t, 0, serving(member.Serving))
	s.run(time.Minute)
	for range 40 { // from now on it takes what it is assigned
		s.run(2 * time.Second)
		for slot := range 8 {
			if name := member.SlotLeaseName("fleet", slot, 8); s.assignee(slot) == "r-1" && member.Holder(s.leases[name]) == "" {
				s.write(name, heldBy(another))
			}
		}
	}
	s.run(4 * time.Minute)
	if slots := s.assigned(); slots < 3 {
		t.Errorf("%d slots are assigned to it, want its share", slots)
	}
}

// observation is a point in time with what the replica reports and has, and the expected limit.
type observation struct {
	at     time.Duration
	report member.Fitness
	has    possession
	// passed is true if it did not take a slot immediately before.
	passed bool
	want   assignment.Limit
	// again is when the limit has to be computed again; 0: it has not.
	again time.Duration
}

// TestLimits uses the number of seconds as the step. The failures of a session limit it for 1, 2, 4
// minutes and so on, a slot opens within 30 s, a session is dead after 15 s, and failures are
// forgotten after 10 minutes without one.
func TestLimits(t *testing.T) {
	fit, untried, failing := serving(member.Serving), serving(member.Untried), serving(member.Failing)
	suspended, blind := member.Fitness{Observes: true}, member.Fitness{Acts: true}
	has := func(assigned int, acquired uint64) possession { return possession{assigned, assigned > 0, acquired} }
	const s, m = time.Second, time.Minute
	for name, hearings := range map[string][]observation{
		"a session has no failures": {
			{at: 1 * s, report: fit, has: has(1, 1)},
			{at: 2 * s, report: fit, has: has(0, 0)},
			{at: 3 * s, report: untried, want: assignment.Probe},
			{at: 4 * s, report: untried, has: has(3, 1), want: assignment.Probe},
		},
		"it is suspended, twice": {
			{at: 1 * s, report: suspended, want: assignment.Rest, again: 16 * s},
			{at: 10 * s, report: suspended, want: assignment.Rest, again: 16 * s},
			{at: 12 * s, report: fit},
			{at: 15 * s, report: suspended, want: assignment.Rest, again: 30 * s},
			{at: 30 * s, report: suspended, want: assignment.Evict},
			{at: 31 * s, report: fit},
		},
		"it is suspended after it was unfit": {
			{at: 1 * s, report: suspended, want: assignment.Rest, again: 16 * s},
			{at: 10 * s, report: blind, want: assignment.Evict},
			{at: 20 * s, report: suspended, want: assignment.Rest, again: 35 * s},
		},
		"it was blind": {
			{at: 1 * s, report: blind, want: assignment.Evict},
			{at: 5 * m, report: blind, want: assignment.Evict},
			{at: 6 * m, report: fit, want: assignment.Probe},
		},
		"it does not take slots, and then takes one": {
			{at: 10 * s, report: fit, has: has(4, 5), passed: true, want: assignment.Rest, again: 70 * s},
			{at: 11 * s, report: untried, has: has(4, 5), want: assignment.Rest, again: 70 * s},
			{at: 69 * s, report: fit, has: has(4, 5), want: assignment.Rest, again: 70 * s},
			{at: 70 * s, report: fit, has: has(0, 5), want: assignment.Probe},
			{at: 71 * s, report: fit, has: has(4, 10), want: assignment.ProbeMore}, // acquired in the step in which it was blamed
			{at: 72 * s, report: untried, has: has(4, 11), want: assignment.Probe},
			{at: 73 * s, report: fit, has: has(4, 11)},
			{at: 74 * s, report: fit, has: has(0, 0)}, // from then on
		},
		"it does not take slots again and again": {
			{at: 1 * s, report: fit, passed: true, want: assignment.Rest, again: 61 * s},
			{at: 30 * s, report: fit, passed: true, want: assignment.Rest, again: 61 * s}, // once for all failures at a time
			{at: 61 * s, report: fit, passed: true, want: assignment.Rest, again: 181 * s},
			{at: 181 * s, report: fit, want: assignment.Probe},
			{at: 182 * s, report: fit, has: has(1, 61), want: assignment.ProbeMore},
			{at: 183 * s, report: fit, has: has(1, 182)},
			{at: 184 * s, report: fit, passed: true, has: has(1, 182), want: assignment.Rest, again: 184*s + 4*m},
		},
		"10 minutes without a failure reset the count": {
			{at: 1 * s, report: fit, passed: true, want: assignment.Rest, again: 61 * s},
			{at: 100 * s, report: fit, has: has(1, 99)},
			{at: 100*s + 10*m - 1, report: fit, has: has(1, 99)},
			{at: 100*s + 10*m, report: fit, passed: true, has: has(1, 99), want: assignment.Rest, again: 100*s + 11*m},
		},
		"a little less time does not": {
			{at: 1 * s, report: fit, passed: true, want: assignment.Rest, again: 61 * s},
			{at: 100 * s, report: fit, has: has(1, 99)},
			{at: 99*s + 10*m, report: fit, passed: true, has: has(1, 99), want: assignment.Rest, again: 99*s + 12*m},
		},
		"it fails to serve, and gets one slot when it has none": {
			{at: 1 * s, report: failing, has: has(2, 1), want: assignment.Evict, again: 61 * s},
			{at: 2 * s, report: failing, has: has(0, 1), want: assignment.Evict, again: 61 * s},
			{at: 61 * s, report: failing, has: has(0, 1), want: assignment.Retry, again: 106 * s},
			{at: 62 * s, report: failing, has: has(1, 1), want: assignment.Retry, again: 106 * s},
			{at: 105 * s, report: failing, has: has(1, 1), want: assignment.Retry, again: 106 * s},
			{at: 106 * s, report: failing, has: has(1, 1), want: assignment.Evict, again: 226 * s},
			{at: 225 * s, report: failing, has: has(0, 1), want: assignment.Evict, again: 226 * s},
			{at: 230 * s, report: failing, has: has(0, 1), want: assignment.Retry, again: 275 * s},
			{at: 275 * s, report: failing, has: has(0, 1), want: assignment.Evict, again: 275*s + 4*m},
		},
		"it fails to serve, and its slots can be assigned to no other replica": {
			{at: 1 * s, report: failing, has: has(2, 1), want: assignment.Evict, again: 61 * s},
			{at: 61 * s, report: failing, has: has(2, 1), want: assignment.Evict},
			{at: 10 * m, report: failing, has: has(1, 1), want: assignment.Evict},
			{at: 11 * m, report: failing, has: has(0, 1), want: assignment.Retry, again: 11*m + 45*s},
		},
		"it gets one slot, and does not take it: that is one failure": {
			{at: 1 * s, report: failing, want: assignment.Evict, again: 61 * s},
			{at: 61 * s, report: failing, want: assignment.Retry, again: 106 * s},
			{at: 66 * s, report: failing, passed: true, want: assignment.Evict, again: 186 * s},
			{at: 186 * s, report: failing, want: assignment.Retry, again: 231 * s},
		},
		"it serves again, and fails again and again: it keeps its slots for longer each time": {
			{at: 1 * s, report: failing, want: assignment.Evict, again: 61 * s},
			{at: 20 * s, report: fit, has: has(2, 1), want: assignment.Rest, again: 61 * s},
			{at: 30 * s, report: failing, has: has(2, 1), want: assignment.Retry, again: 45 * s},
			{at: 45 * s, report: failing, has: has(2, 1), want: assignment.Evict, again: 61 * s},
			{at: 62 * s, report: fit, has: has(2, 62)},
			{at: 70 * s, report: failing, has: has(8, 62), want: assignment.Retry, again: 85 * s},
			{at: 85 * s, report: failing, has: has(8, 62), want: assignment.Evict, again: 190 * s},
			{at: 191 * s, report: fit, has: has(8, 191)},
			{at: 200 * s, report: failing, has: has(8, 191), want: assignment.Retry, again: 230 * s},
			{at: 201 * s, report: fit, has: has(8, 191), want: assignment.Rest, again: 200*s + 4*m},
			{at: 10 * m, report: fit, has: has(8, 600)},
			{at: 20 * m, report: failing, has: has(8, 600), want: assignment.Evict, again: 21 * m},
		},
		"it gets one slot, serves, and fails again": {
			{at: 1 * s, report: failing, want: assignment.Evict, again: 61 * s},
			{at: 61 * s, report: failing, has: has(0, 0), want: assignment.Retry, again: 106 * s},
			{at: 70 * s, report: fit, has: has(1, 65)},
			{at: 80 * s, report: failing, has: has(1, 65), want: assignment.Evict, again: 200 * s},
			{at: 200 * s, report: failing, want: assignment.Retry, again: 245 * s},
		},
	} {
		t.Run(name, func(t *testing.T) {
			d := &doubt{}
			for _, h := range hearings {
				step := uint64(h.at / time.Second)
				if h.passed {
					d.blame(settings(8), at(h.at), step)
				}
				limit, again := d.limit(settings(8), at(h.at), step, h.report, DefaultTarget, h.has)
				if limit != h.want || !again.IsZero() != (h.again != 0) || h.again != 0 && again != at(h.again) {
					t.Errorf("after %v: want limit %d until %v, got %d until %v", h.at, h.want, h.again, limit, again.Monotonic)
				}
			}
		})
	}
}

func TestFailuresOfEndedSessionsAreForgotten(t *testing.T) {
	s := twoReplicas(t, 4, serving(member.Failing))
	if s.replica.leader.assigner.doubts[another] == nil {
		t.Fatal("want a failure recorded of a session that fails to serve")
	}
	s.live = nil
	s.write("fleet-session-r-1", heldBy("r-1_ccccc"))
	s.run(2 * time.Second)
	if len(s.replica.leader.assigner.doubts) != 2 || s.replica.leader.assigner.doubts[another] != nil ||
		s.replica.leader.assigner.doubts[me] == nil {
		t.Errorf("want doubts of the two sessions that live, got %v", s.replica.leader.assigner.doubts)
	}
}
