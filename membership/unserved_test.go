package membership

import (
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
)

func TestLastGap(t *testing.T) {
	now := time.Date(2026, 1, 2, 6, 0, 0, 0, time.UTC)
	of := func(name string, age time.Duration, recorded string) *coordinationv1.Lease {
		l := &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{v1alpha1.AnnotationUnserved: recorded}},
		}
		if renewed := metav1.NewMicroTime(now.Add(-age)); age >= 0 {
			l.Spec.RenewTime = &renewed
		}
		return l
	}
	for name, tc := range map[string]struct {
		leases []*coordinationv1.Lease
		want   string
	}{
		"the first session":                {nil, ""},
		"a session that was never renewed": {[]*coordinationv1.Lease{of("f-session-a", -1, "")}, ""},
		"another session lives": {
			[]*coordinationv1.Lease{of("f-session-a", 3*time.Hour, ""), of("f-session-b", time.Second, "")}, "",
		},
		"a hand-over, or a restart": {[]*coordinationv1.Lease{of("f-session-a", 59*time.Second, "")}, ""},
		"no session for 3 hours": {
			[]*coordinationv1.Lease{of("f-session-a", 5*time.Hour, ""), of("f-session-b", 3*time.Hour, "")},
			"2026-01-02T03:00:00Z/2026-01-02T06:00:00Z",
		},
		"only other Leases are new": {
			[]*coordinationv1.Lease{of("f-session-a", 3*time.Hour, ""), of("f-leader", 0, ""), of("f-slot-001", 0, ""), of("g-session-a", 0, "")},
			"2026-01-02T03:00:00Z/2026-01-02T06:00:00Z",
		},
		"another session has recorded it": {
			[]*coordinationv1.Lease{of("f-session-a", time.Second, "2026-01-02T03:00:00Z/2026-01-02T05:59:00Z")},
			"2026-01-02T03:00:00Z/2026-01-02T05:59:00Z",
		},
		"the last of two": {[]*coordinationv1.Lease{
			of("f-session-a", 0, "2026-01-02T03:00:00Z/2026-01-02T04:00:00Z"), of("f-session-b", 0, "2026-01-01T03:00:00Z/2026-01-01T04:00:00Z"),
		}, "2026-01-02T03:00:00Z/2026-01-02T04:00:00Z"},
		"a new one after one that was recorded": {
			[]*coordinationv1.Lease{of("f-session-a", time.Hour, "2026-01-02T03:00:00Z/2026-01-02T04:00:00Z")},
			"2026-01-02T05:00:00Z/2026-01-02T06:00:00Z",
		},
		"by a clock that is ahead by some seconds": {
			[]*coordinationv1.Lease{of("f-session-a", 0, "2026-01-02T03:00:00Z/2026-01-02T06:00:05Z")}, "2026-01-02T03:00:00Z/2026-01-02T06:00:05Z",
		},
		"one that ends in the future":    {[]*coordinationv1.Lease{of("f-session-a", 0, "2026-01-02T03:00:00Z/2026-01-09T03:00:00Z")}, ""},
		"one that cannot be parsed":      {[]*coordinationv1.Lease{of("f-session-a", 0, "2026-01-02T03:00:00Z")}, ""},
		"one that ends before it begins": {[]*coordinationv1.Lease{of("f-session-a", 0, "2026-01-02T04:00:00Z/2026-01-02T03:00:00Z")}, ""},
	} {
		if got := LastGap("f", tc.leases, now).String(); got != tc.want {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
}
