package state

import (
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	member "github.com/machine-controller-fleet/machine-controller-fleet/membership/state"
)

// fit changes a session Lease's report.
func fit(f member.Fitness) func(*coordinationv1.Lease) {
	return func(l *coordinationv1.Lease) {
		holder(another)(l)
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

// twoReplicas is a leader of 8 old slots, of which another replica has some, and which reports something.
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
		if s.preferred(slot) == "r-1" {
			slots++
		}
	}
	return slots
}

func TestAReplicaThatIsUnfitGivesItsSlotsToOthers(t *testing.T) {
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

func TestAReportThatIsNotValidIsThatOfAnUnfitReplica(t *testing.T) {
	s := twoReplicas(t, 4, serving(member.Serving))
	s.write("fleet-session-r-1", func(l *coordinationv1.Lease) {
		member.Annotate(l, v1alpha1.AnnotationFitness, "{")
	})
	s.run(20 * time.Second)
	if slots := s.assigned(); slots != 0 {
		t.Errorf("%d slots are assigned to it", slots)
	}
}

func TestWhereNobodyIsFitEverythingStays(t *testing.T) {
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
		if s.preferred(slot) == "r-1" {
			s.write(member.SlotLeaseName("fleet", slot, 8), holder(another))
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

func TestAReplicaOfAVersionThatReportsNothingIsTakenToBeFit(t *testing.T) {
	s := newStage(t, 8)
	s.live = []string{another}
	s.write("fleet-session-r-1", holder(another))
	for slot := range 8 {
		s.slot(slot, "", "r-0")
	}
	s.step(Elected{})
	s.run(17 * time.Second)
	if slots := s.assigned(); slots != 4 {
		t.Errorf("%d slots are assigned to it, want half", slots)
	}
}

// A replica renews its Lease, says that all is well, and takes nothing. Slots wait for it one at a time, for 5 s each, less and
// less often.
func TestAReplicaThatTakesNothingIsTriedLessAndLessOften(t *testing.T) {
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
	// Half of the slots once, before anything is known against it; then one after 1, 2, 4 and 8 minutes.
	if most := 4*8*time.Second + 4*8*time.Second; unowned > most {
		t.Errorf("slots had no holder for %v in 20 min, want at most %v", unowned, most)
	}
	if unowned == 0 {
		t.Error("it was never tried")
	}
}

func TestAReplicaThatTakesASlotAgainGetsItsShare(t *testing.T) {
	s := twoReplicas(t, 0, serving(member.Serving))
	s.run(time.Minute)
	for range 40 { // it takes what it is given, from now on
		s.run(2 * time.Second)
		for slot := range 8 {
			if name := member.SlotLeaseName("fleet", slot, 8); s.preferred(slot) == "r-1" && member.Holder(s.leases[name]) == "" {
				s.write(name, holder(another))
			}
		}
	}
	s.run(4 * time.Minute)
	if slots := s.assigned(); slots < 3 {
		t.Errorf("%d slots are assigned to it, want its share", slots)
	}
}
