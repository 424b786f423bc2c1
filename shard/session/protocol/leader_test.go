package protocol

import (
	"strconv"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	member "github.com/machine-controller-fleet/machine-controller-fleet/membership"
)

// leads returns a leader of a fleet with another session.
func leads(t *testing.T) *stage {
	t.Helper()
	s := newStage(t, 8)
	s.live = []string{another}
	s.write("fleet-session-r-1", heldBy(another))
	s.step(Elected{})
	return s
}

func (s *stage) assignee(slot int) string {
	return s.leases[member.SlotLeaseName("fleet", slot, 8)].Annotations[v1alpha1.AnnotationAssignedReplica]
}

func TestInstall(t *testing.T) {
	s := leads(t)
	for slot := range 8 {
		l := s.leases[member.SlotLeaseName("fleet", slot, 8)]
		if l == nil || l.Annotations[v1alpha1.AnnotationQuarantine] != me+","+another ||
			l.Annotations[v1alpha1.AnnotationLeaseUID] != string(l.UID) {
			t.Fatalf("slot %d: want a Lease in quarantine with both sessions listed, got %+v", slot, l)
		}
	}
	s.run(16 * time.Second)
	count := map[string]int{}
	for slot := range 8 {
		count[s.assignee(slot)]++
	}
	if count["r-0"] != 4 || count["r-1"] != 4 {
		t.Errorf("want 4 slots for each of r-0 and r-1, got %v", count)
	}
	s.changes() // the other session has not confirmed
	s.run(30 * time.Second)
	s.changes()
	s.write("fleet-session-r-1", func(l *coordinationv1.Lease) {
		confirmed := ""
		for slot := range 8 {
			confirmed += string(s.leases[member.SlotLeaseName("fleet", slot, 8)].UID) + ","
		}
		member.Annotate(l, v1alpha1.AnnotationConfirmed, confirmed)
	})
	held := 0
	for slot := range 8 {
		if _, ok := s.replica.Entitled(slot); ok {
			held++
		}
	}
	if held == 0 {
		t.Error("want slots acquired after all have confirmed, got none")
	}
}

func TestQuarantine(t *testing.T) {
	// listed makes another leader create the slot's Lease again and list the sessions on it.
	listed := func(s *stage, name, sessions string) {
		s.write(name, func(l *coordinationv1.Lease) {
			*l = *newLease("fleet", "ns", name)
			l.UID = "created-again"
			assign("r-0")(l)
		})
		s.run(20 * time.Second)
		s.expectHolder(name, "") // the time starts with the list, also if that is late
		s.write(name, func(l *coordinationv1.Lease) {
			member.Annotate(l, v1alpha1.AnnotationLeaseUID, string(l.UID))
			member.Annotate(l, v1alpha1.AnnotationQuarantine, sessions)
		})
		s.run(14 * time.Second)
		s.expectHolder(name, "")
		s.run(2 * time.Second)
	}
	t.Run("15 s after the list", func(t *testing.T) {
		s, name := stageThatHolds(t)
		s.remove(name)
		listed(s, name, me)
		s.expectHolder(name, me)
	})
	t.Run("a listed session that is dead does not have to confirm", func(t *testing.T) {
		s, name := stageThatHolds(t)
		s.write("fleet-session-r-1", heldBy(""))
		s.remove(name)
		listed(s, name, me+","+another)
		s.expectHolder(name, me)
	})
	t.Run("a listed session that lives has to confirm", func(t *testing.T) {
		s, name := stageThatHolds(t)
		s.write("fleet-session-r-1", heldBy(another))
		s.remove(name)
		listed(s, name, me+","+another)
		s.expectHolder(name, "")
		s.write("fleet-session-r-1", func(l *coordinationv1.Lease) { member.Annotate(l, v1alpha1.AnnotationConfirmed, "created-again") })
		s.expectHolder(name, me)
	})
	t.Run("confirmed only when nothing is in flight", func(t *testing.T) {
		s, name := stageThatHolds(t)
		s.idle = false
		s.write("fleet-session-r-1", heldBy(another))
		s.remove(name)
		ticket := s.reported[len(s.reported)-1].Ticket
		s.write(name, func(l *coordinationv1.Lease) {
			*l = *newLease("fleet", "ns", name)
			l.UID = "created-again"
			member.Annotate(l, v1alpha1.AnnotationLeaseUID, string(l.UID))
			member.Annotate(l, v1alpha1.AnnotationQuarantine, me)
		})
		s.run(5 * time.Second)
		if got := s.leases["fleet-session-r-0"].Annotations[v1alpha1.AnnotationConfirmed]; got != "" {
			t.Errorf("confirmed %q with something in flight", got)
		}
		s.step(Idle{Slot: 0, Ticket: ticket})
		s.run(2 * time.Second) // with the next renewal
		if got := s.leases["fleet-session-r-0"].Annotations[v1alpha1.AnnotationConfirmed]; got != "created-again" {
			t.Errorf("want it confirmed, got %q", got)
		}
	})
}

func TestDeclareDead(t *testing.T) {
	t.Run("after 15 s of silence, and its slots are assigned to another replica", func(t *testing.T) {
		s := leads(t)
		name := s.slot(0, another, "r-1")
		s.run(30 * time.Second)
		s.live = nil
		s.run(13 * time.Second)
		s.expectHolder("fleet-session-r-1", another)
		s.run(3 * time.Second)
		s.expectHolder("fleet-session-r-1", "")
		s.expectHolder(name, me)
	})
	t.Run("with the version that was silent, and no other", func(t *testing.T) {
		s := leads(t)
		s.run(30 * time.Second)
		s.live = nil
		renewed := s.put(s.leases["fleet-session-r-1"].DeepCopy()) // and the watch lags
		s.run(20 * time.Second)
		s.expectHolder("fleet-session-r-1", another)
		s.step(Seen{renewed})
		s.run(20 * time.Second)
		s.expectHolder("fleet-session-r-1", "")
	})
	t.Run("also if a restored etcd shows it older than it was", func(t *testing.T) {
		s := leads(t)
		s.run(30 * time.Second)
		s.live = nil
		s.leases["fleet-session-r-1"] = s.leases["fleet-session-r-1"].DeepCopy()
		s.leases["fleet-session-r-1"].ResourceVersion = "50"
		s.run(34 * time.Second) // the write conflicts, the read restarts the time
		s.expectHolder("fleet-session-r-1", "")
	})
	t.Run("by the leader only", func(t *testing.T) {
		s := leads(t)
		s.step(Deposed{})
		s.live = nil
		s.run(time.Minute)
		s.expectHolder("fleet-session-r-1", another)
	})
}

func TestAssignments(t *testing.T) {
	t.Run("the slots of a leaving replica are assigned to others, and it is their home for 10 minutes", func(t *testing.T) {
		s := leads(t)
		s.slot(0, another, "r-1")
		s.run(20 * time.Second)
		s.write("fleet-session-r-1", func(l *coordinationv1.Lease) { member.Annotate(l, v1alpha1.AnnotationLeaving, "true") })
		s.run(2 * time.Second)
		home := func() string { return s.leases["fleet-slot-000"].Annotations[v1alpha1.AnnotationHome] }
		if s.assignee(0) != "r-0" || home() != "r-1" {
			t.Fatalf("want it assigned to r-0 with the home r-1, got %s and %q", s.assignee(0), home())
		}
		s.live = nil
		s.write("fleet-session-r-1", heldBy(""))
		s.run(11 * time.Minute)
		if home() != "" {
			t.Errorf("want no home after 10 minutes, got %q", home())
		}
	})
	// r-1 has 2 × mostMoving slots and does not release them; one was assigned to r-0 to try it.
	moving := func(t *testing.T) (s *stage, moved func() int) {
		t.Helper()
		s = newStage(t, 2*mostMoving)
		s.live = []string{another}
		s.write("fleet-session-r-1", heldBy(another))
		s.step(Elected{})
		for slot := range 2 * mostMoving {
			s.slot(slot, another, "r-1")
		}
		s.run(20 * time.Second)
		return s, func() (n int) {
			for slot := range 2 * mostMoving {
				if s.assignee(slot) == "r-0" {
					n++
				}
			}
			return n - 1
		}
	}
	t.Run("of the slots of a leaving replica a few move at a time", func(t *testing.T) {
		s, moved := moving(t)
		leaves := s.now + time.Second
		s.write("fleet-session-r-1", func(l *coordinationv1.Lease) { member.Annotate(l, v1alpha1.AnnotationLeaving, "true") })
		for moved() == 0 && s.now < leaves {
			s.run(100 * time.Millisecond)
		}
		if got := moved(); got != mostMoving {
			t.Fatalf("%d slots are assigned to another replica at first, want %d", got, mostMoving)
		}
		for slot := range mostMoving { // r-0 acquires those that are released
			if s.assignee(slot) == "r-0" && slot%2 == 1 {
				s.write(member.SlotLeaseName("fleet", slot, 8), heldBy(""))
			}
		}
		if got := moved(); got != mostMoving*3/2 {
			t.Errorf("%d slots are assigned to another replica when some have arrived, want %d", got, mostMoving*3/2)
		}
		s.run(releasesWithin + 100*time.Millisecond)
		if got := moved(); got != 2*mostMoving-1 {
			t.Errorf("%d slots are assigned to another replica although others are not released, want all %d", got, 2*mostMoving-1)
		}
	})
	t.Run("the slots of a dead replica are assigned at once", func(t *testing.T) {
		s, moved := moving(t)
		s.live = nil
		s.write("fleet-session-r-1", heldBy(""))
		s.run(2 * time.Second)
		if got := moved(); got != 2*mostMoving-1 {
			t.Errorf("%d slots are assigned to another replica, want all %d", got, 2*mostMoving-1)
		}
	})
	t.Run("the weight of a slot is the last reported one, also of a dead holder", func(t *testing.T) {
		s := leads(t)
		name := s.slot(0, another, "r-1")
		weighs := func() int64 { return s.replica.leader.assigner.world(at(s.now)).Slots[0].Weight }
		s.write(name, func(l *coordinationv1.Lease) { member.Annotate(l, v1alpha1.AnnotationWeight, "3") })
		if got := weighs(); got != 3 {
			t.Errorf("recorded on its Lease: %d, want 3", got)
		}
		report := func(text string) {
			s.report("r-1", another, text, "")
		}
		if report("0:7,1:2"); weighs() != 7 {
			t.Errorf("reported: %d, want 7", weighs())
		}
		if report(""); weighs() != 7 {
			t.Errorf("not reported any more: %d, want 7", weighs())
		}
		if report("0:0"); weighs() != 0 {
			t.Errorf("reported as empty: %d, want 0", weighs())
		}
		report("0:9")
		s.write("fleet-session-r-1", func(l *coordinationv1.Lease) { *l = *emptied(l) })
		if got := weighs(); got != 9 {
			t.Errorf("reported by a dead one: %d, want 9", got)
		}
	})
	t.Run("a slot that its assigned replica does not take is assigned to another", func(t *testing.T) {
		s := leads(t)
		s.run(20 * time.Second)
		name := s.slot(0, "", "r-1")
		s.run(4 * time.Second)
		s.expectHolder(name, "")
		s.run(3 * time.Second)
		s.expectHolder(name, me)
	})
	t.Run("not before the view is warm", func(t *testing.T) {
		s := leads(t)
		s.slot(0, "", "")
		s.run(13 * time.Second)
		if got := s.assignee(0); got != "" {
			t.Errorf("assigned to %q, want no assignment", got)
		}
		s.run(3 * time.Second)
		if got := s.assignee(0); got == "" {
			t.Error("want it assigned, got no assignment")
		}
	})
	t.Run("a slot Lease without its labels gets them back", func(t *testing.T) {
		s := leads(t)
		s.slot(0, another, "r-1")
		if s.write("fleet-slot-000", func(l *coordinationv1.Lease) {
			l.Labels = nil
		}); s.leases["fleet-slot-000"].Labels[v1alpha1.LabelFleet] != "fleet" {
			t.Errorf("got %v", s.leases["fleet-slot-000"].Labels)
		}
	})
}

func TestCheckLease(t *testing.T) {
	ours := settings(8)
	lease := func(name, holder string, recorded map[string]string) *coordinationv1.Lease {
		return &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: recorded}, Spec: coordinationv1.LeaseSpec{HolderIdentity: &holder},
		}
	}
	const leader, session, slot = "fleet-leader", "fleet-session-r-1", "fleet-slot-000"
	for _, name := range []string{leader, session} {
		if err := CheckLease(ours, lease(name, another, Record(ours))); err != nil {
			t.Errorf("%s: the same settings: %v", name, err)
		}
		if err := CheckLease(ours, lease(name, another, nil)); err != nil {
			t.Errorf("%s: nothing is recorded: %v", name, err)
		}
	}
	for key := range Record(ours) {
		other := map[string]string{key: "other"}
		for _, tc := range []struct {
			name, holder string
			differs      bool
		}{
			{leader, another, true}, {leader, "", true}, {session, another, true}, {session, "", false}, {slot, another, false},
		} {
			if err := CheckLease(ours, lease(tc.name, tc.holder, other)); (err != nil) != tc.differs {
				t.Errorf("%s with holder %q and another %s: got %v, want an error: %t", tc.name, tc.holder, key, err, tc.differs)
			}
		}
	}
}

func TestSettings(t *testing.T) {
	for name, change := range map[string]func(*Settings){
		"session":    func(s *Settings) { s.Session = "r-1_aaaaa" },
		"fleet":      func(s *Settings) { s.Fleet = "" },
		"slots":      func(s *Settings) { s.Slots = 0 },
		"capacity":   func(s *Settings) { s.Capacity = -1 },
		"config":     func(s *Settings) { s.Config.Fence = 0 },
		"assignment": func(s *Settings) { s.Assignment.Window = 0 },
	} {
		s := settings(8)
		if change(&s); s.Validate() == nil {
			t.Errorf("%s: want an error", name)
		}
	}
}

// BenchmarkSeenRenewal measures what each renewal of another replica costs: 50 replicas renew every
// 2 s.
func BenchmarkSeenRenewal(b *testing.B) {
	r, err := NewSession(settings(256))
	if err != nil {
		b.Fatal(err)
	}
	var leases []*coordinationv1.Lease
	for i := range 50 {
		l := &coordinationv1.Lease{}
		l.Name = member.SessionLeaseName("fleet", "r-"+strconv.Itoa(i+1))
		heldBy(member.Identity("r-"+strconv.Itoa(i+1), "aaaaa"))(l)
		leases = append(leases, l)
	}
	r.Step(at(time.Second), Listed{leases})
	b.ReportAllocs()
	version := 0
	for b.Loop() {
		version++
		l := *leases[version%50]
		l.ResourceVersion = strconv.Itoa(version)
		r.Step(at(time.Second), Seen{&l})
	}
}
