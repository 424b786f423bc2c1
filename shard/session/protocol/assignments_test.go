package protocol

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	coordinationv1 "k8s.io/api/coordination/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	member "github.com/machine-controller-fleet/machine-controller-fleet/membership"
	"github.com/machine-controller-fleet/machine-controller-fleet/shard/assignment"
)

// TestWorldOfASlot observes slot 0 after a second. The leader assigns nothing in its first 15 s.
func TestWorldOfASlot(t *testing.T) {
	noted := func(key, value string) func(*coordinationv1.Lease) {
		return func(l *coordinationv1.Lease) { member.Annotate(l, key, value) }
	}
	const now = 10 * time.Second
	for name, test := range map[string]struct {
		holder string
		change func(s *stage, name string)
		want   assignment.Slot
	}{
		"held": {another, func(*stage, string) {}, assignment.Slot{Holder: "r-1"}},
		"not held, since the Lease names another session of the replica": {
			"r-1_ccccc", func(*stage, string) {}, assignment.Slot{UnownedSince: time.Second},
		},
		"not held, since the holder is no session": {
			"r-1", func(s *stage, _ string) { s.write("fleet-session-r-1", heldBy("r-1")) }, assignment.Slot{UnownedSince: time.Second},
		},
		"not held, since the Lease is new": {another, func(s *stage, name string) {
			s.unanswered("", member.List, false)
			s.write(name, noted(v1alpha1.AnnotationLeaseUID, "another"))
		}, assignment.Slot{}},
		"the weight that its holder reports": {another, func(s *stage, name string) {
			s.report("r-1", another, "0:7", "")
			s.write(name, noted(v1alpha1.AnnotationWeight, "9"))
		}, assignment.Slot{Holder: "r-1", Weight: 7}},
		"the weight that its holder reports with its renewals, as an earlier version does": {another, func(s *stage, _ string) {
			s.report("r-1", another, "0:3", "")
			s.write("fleet-session-r-1", noted(v1alpha1.AnnotationWeights, "0:7"))
		}, assignment.Slot{Holder: "r-1", Weight: 7}},
		"not the weight that another session of the replica has reported": {another, func(s *stage, name string) {
			s.report("r-1", "r-1_ccccc", "0:7", "")
			s.write(name, noted(v1alpha1.AnnotationWeight, "9"))
		}, assignment.Slot{Holder: "r-1", Weight: 9}},
		"the weight on the Lease": {another, func(s *stage, name string) {
			s.report("r-1", another, "1:7", "")
			s.write(name, noted(v1alpha1.AnnotationWeight, "9"))
		}, assignment.Slot{Holder: "r-1", Weight: 9}},
		"no weight of a replica whose session the holder is not": {"r-1", func(s *stage, _ string) {
			s.report("r-1", another, "0:7", "")
		}, assignment.Slot{UnownedSince: time.Second}},
		"a home": {another, func(s *stage, name string) {
			s.run(3 * time.Second)
			s.write(name, noted(v1alpha1.AnnotationHome, "r-7"))
		}, assignment.Slot{Holder: "r-1", Home: "r-7", HomeUntil: 4*time.Second + 10*time.Minute}},
		"decided, and not written yet": {another, func(s *stage, name string) {
			s.write(name, noted(v1alpha1.AnnotationHome, "r-7"))
			s.replica.slots[0].target, s.replica.slots[0].targetHome = "r-5", "r-6"
		}, assignment.Slot{Holder: "r-1", Assigned: "r-5", Home: "r-6", HomeUntil: now + 10*time.Minute}},
		"passed over, and moved": {another, func(s *stage, _ string) {
			s.replica.slots[0].movedAt = at(7 * time.Second)
			s.replica.slots[0].passed = map[string]time.Duration{"r-5": now, "r-6": now + 1}
		}, assignment.Slot{Holder: "r-1", Moved: 7 * time.Second, Passed: map[string]time.Duration{"r-6": now + 1}}},
	} {
		t.Run(name, func(t *testing.T) {
			s := leads(t)
			name := s.slot(0, test.holder, "r-1")
			test.change(s, name)
			if test.want.Assigned == "" {
				test.want.Assigned = "r-1"
			}
			test.want.Target = DefaultTarget
			if diff := cmp.Diff(test.want, s.replica.leader.assigner.world(at(now)).Slots[0]); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// The last reported weight is used for a slot whose new holder has not reported one. A session that
// does not lead knows only what is reported now.
func TestWeightOfASlot(t *testing.T) {
	s := newStage(t, 8)
	name := s.slot(0, another, "r-1")
	s.write("fleet-session-r-1", heldBy(another))
	s.report("r-1", another, "0:7", "")
	s.write(name, func(l *coordinationv1.Lease) { member.Annotate(l, v1alpha1.AnnotationWeight, "9") })
	if got := s.replica.Facts(at(s.now)).Slots[0].Weight; got != 7 {
		t.Errorf("want 7, as reported, got %d", got)
	}
	s.step(Elected{})
	s.replica.leader.assigner.world(at(s.now))
	s.write(name, heldBy("r-2_ccccc"))
	if got := s.replica.leader.assigner.world(at(s.now)).Slots[0].Weight; got != 7 {
		t.Errorf("want 7, as reported last, got %d", got)
	}
}

func TestReadWeights(t *testing.T) {
	if diff := cmp.Diff(map[int]int64{2: 5, 3: -1}, readWeights("x:3,1:y,2:5,4,3:-1,8:1,-1:1", 8)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestPossessions(t *testing.T) {
	s := newStage(t, 8)
	s.write("fleet-session-r-1", heldBy(another))
	s.write("fleet-session-r-2", heldBy("r-2_ccccc"))
	for slot := 7; slot > 2; slot-- {
		s.slot(slot, another, "r-1")
	}
	s.slot(1, another, "r-2")
	last := s.replica.steps
	s.slot(2, "", "r-2")
	s.slot(0, "r-2_ccccc", "r-1")
	want := map[string]possession{"r-1": {6, true, last}, "r-2": {2, true, s.replica.steps}}
	if diff := cmp.Diff(want, s.replica.leader.assigner.possessions(), cmp.AllowUnexported(possession{})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestWorldOfReplicas(t *testing.T) {
	limits := func(limit assignment.Limit) map[string]assignment.Limit {
		return map[string]assignment.Limit{DefaultTarget: limit}
	}
	noted := func(session string, notes map[string]string) func(*coordinationv1.Lease) {
		return func(l *coordinationv1.Lease) {
			heldBy(session)(l)
			for key, value := range notes {
				member.Annotate(l, key, value)
			}
		}
	}
	s := newStage(t, 8)
	s.slot(0, "", "r-0")
	s.run(3 * time.Second)
	s.blind = true // what it reports is not visible in the watch yet
	s.step(Watched{Broken: map[string]string{DefaultTarget: "Nodes are not delivered"}})
	s.write("fleet-session-a", noted("a_aaaaa", map[string]string{v1alpha1.AnnotationCapacity: "2"}))
	s.write("fleet-session-b", noted("b_aaaaa", map[string]string{v1alpha1.AnnotationLeaving: "true"}))
	s.write("fleet-session-c", noted("", map[string]string{v1alpha1.AnnotationLeaving: "true"}))
	s.write("fleet-session-d", noted("", nil))
	s.write("fleet-session-e", noted("e_aaaaa", map[string]string{v1alpha1.AnnotationFitness: member.Fitness{Observes: true}.String()}))
	s.step(Elected{})
	s.replica.wake = member.Moment{}
	want := []assignment.Replica{
		{Name: "a", Capacity: 2, Limits: limits(assignment.NoLimit)},
		{Name: "b", Capacity: 1, Leaving: true},
		{Name: "c", Capacity: 1, Leaving: true},
		{Name: "e", Capacity: 1, Limits: limits(assignment.Rest)},
		{Name: "r-0", Capacity: 1, Limits: limits(assignment.Evict)},
	}
	if diff := cmp.Diff(want, s.replica.leader.assigner.world(at(s.now)).Replicas); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if want := at(s.now + 15*time.Second); s.replica.wake != want {
		t.Errorf("want e looked at again at %v, got %v", want.Monotonic, s.replica.wake.Monotonic)
	}
	s.step(Leaving{})
	if got := s.replica.leader.assigner.world(at(s.now)).Replicas[4]; !got.Leaving || got.Name != "r-0" {
		t.Errorf("want the leader itself marked, since it leaves, got %+v", got)
	}
	if got := s.replica.leader.assigner.world(at(s.now)).Replicas[0]; got.Leaving {
		t.Errorf("want the others as they were, got %+v", got)
	}
}

// TestUnowned checks since when slot 0 has had no owner although its assigned replica could take
// it. It is seen after a second.
func TestUnowned(t *testing.T) {
	listed := func(sessions string) func(s *stage, name string) {
		return func(s *stage, name string) {
			s.write(name, func(l *coordinationv1.Lease) { member.Annotate(l, v1alpha1.AnnotationQuarantine, sessions) })
		}
	}
	confirms := func(s *stage, name string) {
		s.write("fleet-session-r-1", func(l *coordinationv1.Lease) {
			member.Annotate(l, v1alpha1.AnnotationConfirmed, string(s.leases[name].UID))
		})
	}
	for name, test := range map[string]struct {
		holder string
		change func(s *stage, name string)
		want   time.Duration // 0: it is not
	}{
		"held by a session that lives":            {another, func(*stage, string) {}, 0},
		"free":                                    {"", func(*stage, string) {}, time.Second},
		"held by an earlier session":              {"r-1_ccccc", func(*stage, string) {}, time.Second},
		"held by a session without a Lease":       {"r-7_ccccc", func(*stage, string) {}, 16 * time.Second},
		"in quarantine, and the listed one lives": {"", listed(another), 0},
		"in quarantine, and the listed one died":  {"", listed("r-1_ccccc"), 16 * time.Second},
		"in quarantine, and one of two died":      {"", listed("r-1_ccccc," + another), 0},
		"in quarantine, and it is confirmed": {
			"", func(s *stage, name string) { listed(another)(s, name); confirms(s, name) }, 16 * time.Second,
		},
		"in quarantine, and both have confirmed": {
			"", func(s *stage, name string) { listed(another+","+me)(s, name); confirms(s, name) }, 16 * time.Second,
		},
		"it is assigned to another replica then": {
			"", func(s *stage, name string) { s.run(2 * time.Second); s.write(name, assign("r-5")) }, 3 * time.Second,
		},
		"something else on its Lease changes": {"", func(s *stage, name string) {
			s.run(2 * time.Second)
			s.write(name, func(l *coordinationv1.Lease) { member.Annotate(l, "note", "x") })
		}, time.Second},
		"its Lease is new, and not listed": {"", func(s *stage, name string) {
			s.unanswered("", member.List, false)
			s.write(name, func(l *coordinationv1.Lease) { member.Annotate(l, v1alpha1.AnnotationLeaseUID, "another") })
		}, 0},
		"it was held meanwhile": {"", func(s *stage, name string) {
			s.run(2 * time.Second)
			s.write(name, heldBy(another))
			s.run(2 * time.Second)
			s.write(name, heldBy(""))
		}, 5 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			s := leads(t)
			s.replica.leader.assigner.again = at(time.Hour) // no assignments, only observations
			name := s.slot(0, test.holder, "r-1")
			test.change(s, name)
			s.run(time.Second)
			if got := s.replica.slots[0].ownerless; test.want == 16*time.Second && !got.IsZero() {
				t.Errorf("want it unowned after 15 s, got it after %v", got.Monotonic)
			}
			s.run(20 * time.Second)
			if got := s.replica.slots[0].ownerless.Monotonic; got != test.want {
				t.Errorf("want it unowned since %v, got %v", test.want, got)
			}
		})
	}
}

func TestWhenSlotsAreAssigned(t *testing.T) {
	t.Run("when the leader's renewals have been observed for 15 s", func(t *testing.T) {
		s := newStage(t, 8)
		for slot := range 8 {
			s.slot(slot, "", map[bool]string{true: "", false: "r-0"}[slot == 0])
		}
		s.step(Elected{})
		since, _ := s.replica.others.Observing()
		before := s.replica.steps
		s.run(since.Monotonic + 14900*time.Millisecond - s.now)
		if got := s.assignee(0); got != "" {
			t.Fatalf("want nothing assigned before, got %q", got)
		}
		s.run(100 * time.Millisecond)
		if got := s.assignee(0); got != "r-0" {
			t.Errorf("want the slot assigned, got %q", got)
		}
		if steps := s.replica.steps - before; steps > 60 {
			t.Errorf("want it to wait for that, got %d steps in 15 s", steps)
		}
	})
	t.Run("once a second", func(t *testing.T) {
		s := leads(t)
		s.run(30 * time.Second)
		s.slot(0, "", "")
		if got := s.assignee(0); got == "" {
			t.Fatal("want the first one assigned at once")
		}
		s.slot(1, "", "")
		s.run(900 * time.Millisecond)
		if got := s.assignee(1); got != "" {
			t.Errorf("want the second one assigned after a second, got %q", got)
		}
		s.run(100 * time.Millisecond)
		if got := s.assignee(1); got == "" {
			t.Error("want the second one assigned")
		}
	})
	t.Run("when the assignment requests it", func(t *testing.T) {
		s := newStage(t, 8)
		for slot := range 8 {
			s.slot(slot, "", "r-0")
		}
		s.step(Elected{})
		s.run(20 * time.Second)
		s.write("fleet-slot-000", func(l *coordinationv1.Lease) { member.Annotate(l, v1alpha1.AnnotationHome, "r-7") })
		s.run(2 * time.Second)
		if want := at(20*time.Second + s.replica.settings.Assignment.HomeFor + time.Second); s.replica.wake != want {
			t.Errorf("want the next assignment at %v, when the home expires, got %v", want.Monotonic, s.replica.wake.Monotonic)
		}
	})
}

func TestMovesAreRecorded(t *testing.T) {
	t.Run("those to a replica that has joined, and no necessary ones", func(t *testing.T) {
		s := twoReplicas(t, 0, serving(member.Untried))
		s.run(2 * time.Second)
		moved := 0
		for slot := range 8 {
			if s.assignee(slot) == "r-1" {
				moved++
			} else if !s.replica.slots[slot].movedAt.IsZero() {
				t.Errorf("slot %d has not moved", slot)
			}
			if is := !s.replica.slots[slot].movedAt.IsZero(); is != (s.assignee(slot) == "r-1") {
				t.Errorf("slot %d: noted as moved: %v", slot, is)
			}
		}
		if moved != 1 {
			t.Fatalf("want one slot moved, got %d", moved)
		}
		s.slot(3, "", "")
		s.run(2 * time.Second)
		if s.assignee(3) == "" || !s.replica.slots[3].movedAt.IsZero() {
			t.Error("want the new slot assigned, which does not count as a move")
		}
	})
	t.Run("the replica that was passed over", func(t *testing.T) {
		s := twoReplicas(t, 4, serving(member.Serving))
		s.replica.slots[0].passed = map[string]time.Duration{"r-7": time.Hour}
		s.write("fleet-slot-000", heldBy(""))
		freed := s.now
		for s.assignee(0) == "r-1" && s.now < freed+time.Minute {
			s.run(100 * time.Millisecond)
		}
		want := map[string]time.Duration{"r-7": time.Hour, "r-1": s.now + time.Minute}
		if diff := cmp.Diff(want, s.replica.slots[0].passed); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		if s.replica.leader.assigner.doubts[another].times != 1 {
			t.Error("want a failure recorded of the session that did not take a slot")
		}
	})
}

func TestWritingTheAssignments(t *testing.T) {
	t.Run("an assignment is written before a home expires, and sets its own home", func(t *testing.T) {
		s := leads(t)
		name := s.slot(0, another, "r-0")
		s.write(name, func(l *coordinationv1.Lease) { member.Annotate(l, v1alpha1.AnnotationHome, "r-8") })
		slot := s.replica.slots[0]
		slot.target, slot.targetHome, slot.homeSince = "r-1", "r-7", at(-time.Hour)
		s.write(name, func(l *coordinationv1.Lease) { member.Annotate(l, "note", "x") })
		home := func() string { return s.leases[name].Annotations[v1alpha1.AnnotationHome] }
		if s.assignee(0) != "r-1" || home() != "r-7" {
			t.Fatalf("want r-1 with the home r-7, got %q with %q", s.assignee(0), home())
		}
		s.run(11 * time.Minute)
		if s.assignee(0) != "r-1" || home() != "" {
			t.Errorf("want r-1 without a home after its time, got %q with %q", s.assignee(0), home())
		}
	})
	t.Run("a slot with a pending assignment to another replica is not acquired before it is written", func(t *testing.T) {
		s := leads(t)
		name := s.slot(0, another, "r-0")
		s.replica.slots[0].target = "r-1"
		acquired := false
		s.fate = func(r member.Request) (member.Outcome, bool) {
			acquired = acquired || r.Name == name && r.Verb == member.Update && member.Holder(r.Lease) == me
			return on(name, member.Update, member.Refused, false)(r)
		}
		s.write(name, heldBy(""))
		s.run(2 * time.Second)
		if acquired {
			t.Error("want the leader to leave the slot to r-1, to which it will be assigned")
		}
	})
}
