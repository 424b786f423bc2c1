package disruption

import (
	"fmt"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
)

// Machines that have run are replaced with a reservation of the deletion budget only, and no others
// need one.
func TestDeletionBudget(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	since := now.Add(-2 * time.Hour)
	key := func(uids ...types.UID) (keys []string) {
		for _, uid := range uids {
			keys = append(keys, fmt.Sprintf("%s@%d", uid, since.Unix()))
		}
		return keys
	}
	for _, tc := range []struct {
		name            string
		failed, neverUp int // machines u0, u1, …, those that have run first
		limit           int // of disruptions at the same time
		limited         bool
		reserved        []string
		held, away      bool
		granted         []types.UID
		deletions       []string
		unreserved      int
	}{
		{name: "nothing is limited", failed: 2, limit: 10, granted: []types.UID{"u0", "u1"}, deletions: key("u0", "u1")},
		{
			name: "all are reserved", failed: 2, limit: 10, limited: true, reserved: key("u0", "u1"), granted: []types.UID{"u0", "u1"},
			deletions: key("u0", "u1"),
		},
		{name: "none is reserved", failed: 2, limit: 10, limited: true, unreserved: 2},
		{
			name: "the second is reserved", failed: 2, limit: 10, limited: true, reserved: key("u1"), granted: []types.UID{"u1"},
			deletions: key("u1"), unreserved: 1,
		},
		{name: "an earlier failure is reserved", failed: 1, limit: 10, limited: true, reserved: []string{"u0@1"}, unreserved: 1},
		{name: "the disruption budget is smaller", failed: 3, limit: 1, granted: []types.UID{"u0"}, deletions: key("u0")},
		{
			name: "what the disruption budget prevents does not wait for a reservation", failed: 3, limit: 2, limited: true, reserved: key("u0"),
			granted: []types.UID{"u0"}, deletions: key("u0"), unreserved: 1,
		},
		{
			name: "machines that never ran need none", failed: 1, neverUp: 2, limit: 10, limited: true, granted: []types.UID{"u1", "u2"},
			unreserved: 1,
		},
		{
			name: "machines that never ran do not wait for one without a reservation", failed: 1, neverUp: 6, limit: 1, limited: true,
			granted: []types.UID{"u1"}, unreserved: 1,
		},
		{name: "deletions are held", failed: 2, limit: 10, limited: true, held: true},
		{name: "an API server is away", failed: 2, limit: 10, limited: true, away: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := World{
				Now: now, Held: tc.held, Away: tc.away, Breakers: Snapshot{Complete: true}, Limited: tc.limited, Reserved: map[string]bool{},
				Limits: Limits{HealthTimeout: 10 * time.Minute, Budget: intstr.FromInt(tc.limit), Thresholds: DefaultThresholds()},
			}
			for _, reserved := range tc.reserved {
				w.Reserved[reserved] = true
			}
			for i := range tc.failed + tc.neverUp {
				m := &v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("m", i), UID: types.UID(fmt.Sprint("u", i))}}
				m.Status.CurrentStatus = v1alpha1.CurrentStatus{Phase: v1alpha1.MachineFailed, LastUpdateTime: metav1.NewTime(since)}
				m.Status.LastOperation.Type = v1alpha1.MachineOperationHealthCheck
				if i >= tc.failed {
					m.Status.LastOperation.Type = v1alpha1.MachineOperationCreate
				}
				w.Machines = append(w.Machines, Member{Machine: m})
			}
			if tc.unreserved > 0 {
				w.More = now.Add(time.Minute)
			}
			v := Decide(w)
			if v.Wake != w.More.Sub(now) && tc.unreserved > 0 {
				t.Errorf("wakes after %s, and there are more reservations in a minute", v.Wake)
			}
			var granted []types.UID
			for _, d := range v.Disruptions {
				granted = append(granted, d.UID)
			}
			if !slices.Equal(granted, tc.granted) || !slices.Equal(v.Deletions, tc.deletions) || v.Unreserved != tc.unreserved {
				t.Errorf("granted %q, deletions %q, without a reservation %d; want %q, %q, %d",
					granted, v.Deletions, v.Unreserved, tc.granted, tc.deletions, tc.unreserved)
			}
		})
	}
}
