package membership

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
)

const (
	first, second = "f-0_aaaaa", "f-1_bbbbb"
)

// held returns a Lease of fleet f.
func held(name, holder, version string) coordinationv1.Lease {
	return coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: "f-" + name, ResourceVersion: version, Annotations: map[string]string{}},
		Spec:       coordinationv1.LeaseSpec{HolderIdentity: &holder},
	}
}

// works returns the Leases of a fleet with two replicas and three slots, before and after each
// session has renewed.
func works() (before, now []coordinationv1.Lease) {
	slots := []coordinationv1.Lease{held("slot-000", first, "1"), held("slot-001", second, "2"), held("slot-002", first, "3")}
	before = append([]coordinationv1.Lease{held("leader", first, "10"), held("session-f-0", first, "11"), held("session-f-1", second, "12")},
		slots...)
	now = append([]coordinationv1.Lease{held("leader", first, "20"), held("session-f-0", first, "21"), held("session-f-1", second, "22")},
		slots...)
	return before, now
}

func TestProblems(t *testing.T) {
	for name, c := range map[string]struct {
		change func(before, now []coordinationv1.Lease) (_, _ []coordinationv1.Lease)
		want   []string
	}{
		"the fleet works": {},
		"nothing is there": {
			change: func(_, _ []coordinationv1.Lease) (_, _ []coordinationv1.Lease) { return nil, nil },
			want: []string{
				"expected sessions of at least 2 replicas that renew their Leases, got 0",
				"no session that lives renews the leader Lease f-leader",
				"3 of 3 slots have no holder that lives: f-slot-000, f-slot-001, f-slot-002",
			},
		},
		"a session has ended": {
			change: func(before, now []coordinationv1.Lease) (_, _ []coordinationv1.Lease) {
				now[2] = held("session-f-1", "", "22")
				return before, now
			},
			want: []string{
				"expected sessions of at least 2 replicas that renew their Leases, got 1",
				"1 of 3 slots have no holder that lives: f-slot-001",
			},
		},
		"a session has died, and its Lease still names it": {
			change: func(before, now []coordinationv1.Lease) (_, _ []coordinationv1.Lease) {
				now[2] = before[2]
				return before, now
			},
			want: []string{
				"session f-1_bbbbb does not renew its Lease f-session-f-1",
				"expected sessions of at least 2 replicas that renew their Leases, got 1",
				"1 of 3 slots have no holder that lives: f-slot-001",
			},
		},
		"a session is new": {
			change: func(before, now []coordinationv1.Lease) (_, _ []coordinationv1.Lease) {
				return append(before[:2:2], before[3:]...), now
			},
		},
		"a session is unfit": {
			change: func(before, now []coordinationv1.Lease) (_, _ []coordinationv1.Lease) {
				now[2].Annotations[v1alpha1.AnnotationFitness] = Fitness{Acts: true, Reason: "its watch is broken"}.String()
				return before, now
			},
			want: []string{"session f-1_bbbbb is unfit: its watch is broken"},
		},
		"a session reports no fitness that can be read": {
			change: func(before, now []coordinationv1.Lease) (_, _ []coordinationv1.Lease) {
				now[1].Annotations[v1alpha1.AnnotationFitness] = "{"
				return before, now
			},
			want: []string{"session f-0_aaaaa is unfit: its report is not valid"},
		},
		"a session leads, and another Lease of it is renewed only": {
			change: func(before, now []coordinationv1.Lease) (_, _ []coordinationv1.Lease) {
				now[0] = before[0]
				return before, now
			},
			want: []string{"no session that lives renews the leader Lease f-leader"},
		},
		"an unknown session leads": {
			change: func(before, now []coordinationv1.Lease) (_, _ []coordinationv1.Lease) {
				now[0] = held("leader", "f-2_ccccc", "20")
				return before, now
			},
			want: []string{"no session that lives renews the leader Lease f-leader"},
		},
		"a slot has an earlier session of the same replica": {
			change: func(before, now []coordinationv1.Lease) (_, _ []coordinationv1.Lease) {
				now[5] = held("slot-002", "f-0_ccccc", "3")
				return before, now
			},
			want: []string{"1 of 3 slots have no holder that lives: f-slot-002"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			before, now := works()
			if c.change != nil {
				before, now = c.change(before, now)
			}
			if diff := cmp.Diff(c.want, Problems(Expected{Fleet: "f", Slots: 3, Replicas: 2}, before, now)); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

func TestProblemOfManySlotsNamesTheFirst(t *testing.T) {
	got := Problems(Expected{Fleet: "f", Slots: 1001}, nil, nil)
	want := "1001 of 1001 slots have no holder that lives: f-slot-0000, f-slot-0001, f-slot-0002, f-slot-0003, f-slot-0004, …"
	if got[len(got)-1] != want {
		t.Errorf("want %q last, got %q", want, got)
	}
}

func TestCheckAfter(t *testing.T) {
	fence := func(value string) coordinationv1.Lease {
		return coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{v1alpha1.AnnotationFence: value}}}
	}
	for name, c := range map[string]struct {
		leases []coordinationv1.Lease
		want   time.Duration
	}{
		"no Leases":               {want: DefaultConfig().Fence},
		"the longest":             {leases: []coordinationv1.Lease{fence("3s"), fence("20s"), fence("")}, want: 20 * time.Second},
		"not a positive duration": {leases: []coordinationv1.Lease{fence("soon"), fence("-1s")}, want: DefaultConfig().Fence},
	} {
		if got := CheckAfter(c.leases); got != c.want {
			t.Errorf("%s: want %s, got %s", name, c.want, got)
		}
	}
}
