package main

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
)

// Sessions of three replicas; the second one of the first replica is that of a new process.
const (
	session0  = "fleet-0_aaaaa"
	session0b = "fleet-0_bbbbb"
	session1  = "fleet-1_aaaaa"
	session2  = "fleet-2_aaaaa"
)

// lease is a Lease of the fleet; assigned is for slots.
func lease(name, holder, assigned string) *coordinationv1.Lease {
	l := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "fleet-" + name}}
	if holder != "" {
		l.Spec.HolderIdentity = &holder
	}
	if assigned != "" {
		l.Annotations = map[string]string{v1alpha1.AnnotationAssignedReplica: assigned}
	}
	return l
}

// version is a Lease of slot 7 as it was so many milliseconds after the beginning.
type version struct {
	ms               int
	holder, assigned string
}

func TestMoves(t *testing.T) {
	// The fleet is killed or scaled after 100 ms.
	const deed = 100
	start := time.Now()
	at := func(ms int) time.Time { return start.Add(time.Duration(ms) * time.Millisecond) }
	moved := func(from, to string, how manner, ms, took int) []move {
		return []move{{slot: 7, from: from, to: to, how: how, at: at(ms), took: time.Duration(took) * time.Millisecond}}
	}
	for name, test := range map[string]struct {
		versions []version
		want     []move
	}{
		"it is new":        {[]version{{0, "", ""}, {150, "", "fleet-0"}, {200, session0, "fleet-0"}}, nil},
		"it is seen first": {[]version{{0, session0, "fleet-0"}}, nil},
		"it is handed over": {
			[]version{{0, session0, "fleet-0"}, {200, session0, "fleet-1"}, {250, "", "fleet-1"}, {300, session1, "fleet-1"}},
			moved("fleet-0", "fleet-1", handedOver, 300, 100),
		},
		"it is released without another replica": {
			[]version{{0, session0, "fleet-0"}, {200, "", "fleet-0"}, {220, "", "fleet-1"}, {300, session1, "fleet-1"}},
			moved("fleet-0", "fleet-1", handedOver, 300, 100),
		},
		"it is assigned elsewhere, and stays": {
			[]version{{0, session0, "fleet-0"}, {200, session0, "fleet-1"}, {220, "", "fleet-1"}, {240, "", "fleet-0"}, {260, session0, "fleet-0"}},
			nil,
		},
		"it is assigned twice": {
			[]version{
				{0, session0, "fleet-0"},
				{200, session0, "fleet-1"},
				{250, session0, "fleet-0"},
				{400, session0, "fleet-2"},
				{410, "", "fleet-2"},
				{420, session2, "fleet-2"},
			},
			moved("fleet-0", "fleet-2", handedOver, 420, 20),
		},
		"its holder dies": {
			[]version{{0, session0, "fleet-0"}, {1500, session0, "fleet-1"}, {1600, session1, "fleet-1"}},
			moved("fleet-0", "fleet-1", takenOver, 1600, 1500),
		},
		"its holder restarts": {
			[]version{{0, session0, "fleet-0"}, {300, session0b, "fleet-0"}},
			moved("fleet-0", "fleet-0", reacquired, 300, 200),
		},
	} {
		t.Run(name, func(t *testing.T) {
			j := newJournal()
			j.deed = at(deed)
			for _, v := range test.versions {
				j.see(lease("slot-007", v.holder, v.assigned), at(v.ms))
			}
			if diff := cmp.Diff(test.want, j.moves, cmp.AllowUnexported(move{})); diff != "" {
				t.Errorf("moves (-want +got):\n%s", diff)
			}
		})
	}
}

func TestMovesAreReportedOnceNoneFollows(t *testing.T) {
	start := time.Now()
	j := newJournal()
	j.see(lease("slot-000", session0, "fleet-0"), start)
	j.see(lease("slot-000", session0b, "fleet-0"), start)
	if got := j.settled(start.Add(time.Second), 2*time.Second); got != nil {
		t.Errorf("taken too early: %+v", got)
	}
	if got := j.settled(start.Add(2*time.Second), 2*time.Second); len(got) != 1 {
		t.Errorf("want the one move, got %+v", got)
	}
	if got := j.settled(start.Add(4*time.Second), 0); got != nil {
		t.Errorf("taken twice: %+v", got)
	}
}

// threeReplicas is a journal of the middle of a hand-over: fleet-0 leads, fleet-1 has left, and
// slot 4 is moving.
func threeReplicas() *journal {
	j := newJournal()
	for _, l := range []*coordinationv1.Lease{
		lease("session-fleet-0", session0, ""), lease("session-fleet-1", "", ""), lease("session-fleet-2", session2, ""),
		lease("leader", session0, ""),
		lease("slot-000", session0, "fleet-0"), lease("slot-001", session0, "fleet-0"), lease("slot-002", session2, "fleet-2"),
		lease("slot-003", session1, "fleet-1"), lease("slot-004", session0, "fleet-2"), lease("slot-005", "", "fleet-2"),
		lease("something-else", "other-holder", ""),
	} {
		j.see(l, time.Now())
	}
	return j
}

func TestFleet(t *testing.T) {
	f := threeReplicas().fleet([]machine{
		{Name: "new"},
		{Name: "a", Slot: "0", Phase: v1alpha1.MachinePending},
		{Name: "b", Slot: "0", Phase: v1alpha1.MachineRunning},
		{Name: "c", Slot: "2", Phase: v1alpha1.MachineRunning},
		{Name: "unowned", Slot: "3"},
		{Name: "unowned-too", Slot: "5"},
	})
	want := []replica{
		{Name: "fleet-0", Session: session0, Leads: true, Slots: 3, Machines: []v1alpha1.MachinePhase{
			v1alpha1.MachineRunning, v1alpha1.MachinePending,
		}},
		{Name: "fleet-2", Session: session2, Slots: 1, Machines: []v1alpha1.MachinePhase{v1alpha1.MachineRunning}},
	}
	if diff := cmp.Diff(want, f.Replicas); diff != "" {
		t.Errorf("replicas (-want +got):\n%s", diff)
	}
	for name, test := range map[string]struct {
		replicas     []string
		dead         string
		held, shares int
	}{
		"a moving slot is not held": {[]string{"fleet-0", "fleet-2"}, "", 3, 2},
		"one of them":               {[]string{"fleet-0"}, "", 2, 1},
		"one has nothing":           {[]string{"fleet-0", "fleet-1"}, "", 2, 1},
		"a session is dead":         {[]string{"fleet-0", "fleet-2"}, session0, 1, 1},
	} {
		if held, shares := f.heldBy(test.replicas, test.dead); held != test.held || shares != test.shares {
			t.Errorf("%s: heldBy = %d, %d, want %d, %d", name, held, shares, test.held, test.shares)
		}
	}
	facts := []fact{
		{Label: "fleet-0", Symbols: want[0].Machines, Text: "3 slots, 2 machines, leads"},
		{Label: "fleet-2", Symbols: want[1].Machines, Text: "killed; it had 1 slot, 1 machine"},
	}
	if diff := cmp.Diff(facts, f.facts(session2)); diff != "" {
		t.Errorf("facts (-want +got):\n%s", diff)
	}
}

func TestBusiest(t *testing.T) {
	some := func(n int) []v1alpha1.MachinePhase { return make([]v1alpha1.MachinePhase, n) }
	for name, test := range map[string]struct {
		replicas []replica
		want     string
	}{
		"none":                {nil, ""},
		"alone":               {[]replica{{Name: "a", Leads: true}}, "a"},
		"not the leader":      {[]replica{{Name: "a", Leads: true, Machines: some(9)}, {Name: "b"}}, "b"},
		"with most machines":  {[]replica{{Name: "a", Machines: some(1), Slots: 9}, {Name: "b", Machines: some(2)}}, "b"},
		"and then most slots": {[]replica{{Name: "a", Slots: 1}, {Name: "b", Slots: 2}}, "b"},
	} {
		got, err := fleet{Replicas: test.replicas}.busiest()
		if got.Name != test.want || (err == nil) != (test.want != "") {
			t.Errorf("%s: busiest = %q, %v, want %q", name, got.Name, err, test.want)
		}
	}
}

func TestStories(t *testing.T) {
	var moves []move
	for slot := 9; slot >= 1; slot-- {
		moves = append(moves, move{
			slot: slot, from: "fleet-0", to: "fleet-3", how: handedOver, took: time.Duration(slot) * 10 * time.Millisecond,
		})
	}
	moves = append(moves,
		move{slot: 40, from: "fleet-0", to: "fleet-2", how: handedOver, took: 30 * time.Millisecond},
		move{slot: 50, from: "fleet-1", to: "fleet-1", how: reacquired, took: 800 * time.Millisecond},
		move{slot: 51, from: "fleet-1", to: "fleet-0", how: takenOver, took: 15 * time.Second},
		move{slot: 52, from: "fleet-1", to: "fleet-0", how: takenOver, took: 15500 * time.Millisecond})
	want := []string{
		"fleet-0 → fleet-2  1 slot handed over, within 0.03 s: 40",
		"fleet-0 → fleet-3  9 slots with 2 machines handed over, each within 0.09 s: 1, 2, 3, 4, 5, …",
		"fleet-1 → fleet-0  2 slots taken over, 15.50 s after the kill: 51, 52",
		"fleet-1 → fleet-1  1 slot with 1 machine taken back, 0.80 s after the kill: 50",
	}
	if diff := cmp.Diff(want, stories(moves, []machine{{Slot: "1"}, {Slot: "9"}, {Slot: "50"}, {Slot: "60"}, {}})); diff != "" {
		t.Errorf("stories (-want +got):\n%s", diff)
	}
}
