package preserve

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/target/reach"
)

// A time in which nothing could be done for a machine does not count for its preservation, and counts once, whichever owner decides.
func TestTimeOfAnOutageProlongsThePreservation(t *testing.T) {
	after := now.Add
	outage := reach.Fact{From: after(time.Hour), Back: after(4 * time.Hour)}
	for name, tc := range map[string]struct {
		expires time.Duration // after a preservation of 96 h
		reach   reach.Fact
		want    time.Duration
	}{
		"without one":                  {expires: 2 * time.Hour, want: 2 * time.Hour},
		"it ends in the outage":        {expires: 2 * time.Hour, reach: outage, want: 5 * time.Hour},
		"it ends after the outage":     {expires: 5 * time.Hour, reach: outage, want: 8 * time.Hour},
		"it ended before the outage":   {expires: 59 * time.Minute, reach: outage, want: 59 * time.Minute},
		"it began after the outage":    {expires: 100 * time.Hour, reach: outage, want: 100 * time.Hour},
		"the API server is still away": {expires: 2 * time.Hour, reach: reach.Fact{Away: true, From: after(time.Hour)}, want: 2 * time.Hour},
		"the process has just started": {expires: 2 * time.Hour, reach: reach.Fact{Reached: after(time.Hour)}, want: 2 * time.Hour},
		"it began in the outage":       {expires: 97*time.Hour + 30*time.Minute, reach: outage, want: 97*time.Hour + 30*time.Minute + 150*time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			w := running()
			w.Machine.Status.CurrentStatus.Phase, w.Machine.Annotations[v1alpha1.AnnotationPreserve] = v1alpha1.MachineFailed, v1alpha1.PreserveNow
			w.Machine.Status.CurrentStatus.PreserveExpiryTime = &metav1.Time{Time: after(tc.expires)}
			expires := func(want time.Duration) {
				t.Helper()
				w.Machine = Decide(w).Machine
				if got := w.Machine.Status.CurrentStatus.PreserveExpiryTime; got == nil || !got.Time.Equal(after(want)) {
					t.Errorf("it expires at %v, want %s", got, after(want))
				}
			}
			w.Now, w.Reach = after(4*time.Hour), tc.reach
			expires(tc.want)
			w.Now = w.Now.Add(time.Minute) // another owner, which has seen the outage some seconds later
			if !tc.reach.Back.IsZero() {
				w.Reach.From, w.Reach.Back = w.Reach.From.Add(20*time.Second), w.Reach.Back.Add(20*time.Second)
			}
			if tc.want != tc.expires {
				expires(tc.want)
				w.Reach, w.Now = reach.Fact{From: after(270 * time.Minute), Back: after(300 * time.Minute)}, after(300*time.Minute)
				expires(tc.want + 30*time.Minute)
			}
		})
	}
}
