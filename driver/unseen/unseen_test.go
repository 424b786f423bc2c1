package unseen_test

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/driver/unseen"
)

func TestMayBe(t *testing.T) {
	now := time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC)
	before := func(d time.Duration) time.Time { return now.Add(-d) }
	for name, tc := range map[string]struct {
		created   time.Time
		note      string
		requested time.Time
		want      bool
	}{
		"a Machine without times":         {time.Time{}, "", time.Time{}, false},
		"a new Machine":                   {before(time.Minute), "", time.Time{}, true},
		"an old Machine":                  {before(2 * time.Minute), "", time.Time{}, false},
		"an old Machine, created again":   {before(time.Hour), unseen.Note(before(time.Minute)), before(time.Minute), true},
		"created long ago":                {before(time.Hour), unseen.Note(before(2 * time.Minute)), before(2 * time.Minute), false},
		"a clock that is ahead":           {before(-time.Minute), "", time.Time{}, true},
		"a clock that is far ahead":       {before(-time.Hour), "", time.Time{}, false},
		"a note of another driver":        {before(time.Hour), "x", time.Time{}, false},
		"a year that cannot be written":   {before(time.Hour), unseen.Note(time.Date(10_000, 1, 1, 0, 0, 0, 0, time.UTC)), time.Time{}, false},
		"a time to come that is not near": {before(time.Hour), unseen.Note(before(-3 * time.Minute)), before(-3 * time.Minute), false},
	} {
		m := &v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: metav1.NewTime(tc.created)}}
		m.Status.LastKnownState = tc.note
		if got := unseen.MayBe(m, now, 2*time.Minute); got != tc.want || !unseen.RequestedAt(m).Equal(tc.requested) {
			t.Errorf("%s: %t with %s, want %t with %s", name, got, unseen.RequestedAt(m), tc.want, tc.requested)
		}
	}
}
