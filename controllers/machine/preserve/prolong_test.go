package preserve

import (
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/target/reach"
)

// A time in which nothing could be done for a machine does not count for its preservation, and
// counts once, whichever owner decides.
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
		"it began in the outage": {
			expires: 97*time.Hour + 30*time.Minute, reach: outage, want: 97*time.Hour + 30*time.Minute + 150*time.Minute,
		},
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

// An outage that was over before the preservation began does not prolong it, regardless of what its
// timeout or its expiry time has become since. One that came later does, also where they have
// become shorter or earlier.
func TestPreservationEndsAsWrittenRegardlessOfLaterTimeouts(t *testing.T) {
	after := now.Add
	for name, change := range map[string]func(w *World, longer bool){
		"the fleet's timeout": func(w *World, longer bool) {
			w.Timeout = map[bool]time.Duration{true: 200 * time.Hour, false: time.Minute}[longer]
		},
		"the machine's timeout": func(w *World, longer bool) {
			w.Machine.Spec.MachineConfiguration = &v1alpha1.MachineConfiguration{
				MachinePreserveTimeout: &metav1.Duration{Duration: map[bool]time.Duration{true: 200 * time.Hour, false: time.Minute}[longer]},
			}
		},
		"the expiry time": func(w *World, longer bool) { // an earlier one looks like a longer timeout
			earlier := map[bool]time.Duration{true: -50 * time.Hour, false: 50 * time.Hour}[longer]
			w.Machine.Status.CurrentStatus.PreserveExpiryTime = &metav1.Time{Time: w.Machine.Status.CurrentStatus.PreserveExpiryTime.Add(earlier)}
		},
	} {
		for _, longer := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, longer: %t", name, longer), func(t *testing.T) {
				w := running()
				w.Machine.Annotations[v1alpha1.AnnotationPreserve] = v1alpha1.PreserveNow
				outage := reach.Fact{From: after(-5 * time.Hour), Back: after(-2 * time.Hour)}
				w.Reach = outage
				w.Machine = Decide(w).Machine
				change(&w, longer)
				written := *w.Machine.Status.CurrentStatus.PreserveExpiryTime
				expires := func(want time.Duration) {
					t.Helper()
					w.Machine = Decide(w).Machine
					if got := w.Machine.Status.CurrentStatus.PreserveExpiryTime; got == nil || got.Sub(written.Time) != want {
						t.Errorf("it expires at %v, want %s after %v", got, want, written)
					}
				}
				w.Now = after(time.Hour)
				expires(0)
				w.Now, w.Reach = after(5*time.Hour), reach.Fact{From: after(2 * time.Hour), Back: after(5 * time.Hour)}
				expires(3 * time.Hour)
			})
		}
	}
}

// A second outage begins within a check of the end of the first one, and before the preservation
// was prolonged for that.
func TestPreservationIsProlongedByASecondOutageSoonAfterTheFirst(t *testing.T) {
	w := running()
	w.Machine.Annotations[v1alpha1.AnnotationPreserve] = v1alpha1.PreserveNow
	w.Machine = Decide(w).Machine
	was := w.Machine.Status.CurrentStatus.PreserveExpiryTime.Time
	for _, outage := range []struct {
		from, back, want time.Duration
	}{{time.Hour, 2 * time.Hour, time.Hour}, {2 * time.Hour, 7 * time.Hour, 6*time.Hour - 5*time.Second}} {
		w.Reach, w.Now = reach.Fact{From: now.Add(outage.from), Back: now.Add(outage.back)}, now.Add(outage.back+5*time.Second)
		w.Machine = Decide(w).Machine
		if got := w.Machine.Status.CurrentStatus.PreserveExpiryTime.Sub(was); got != outage.want {
			t.Errorf("after the outage until %s it is prolonged by %s, want %s", outage.back, got, outage.want)
		}
	}
}

// A note of an earlier preservation, whose end a user has removed, is none of the next one.
func TestPreservationIsNotProlongedByAnOutageBeforeIt(t *testing.T) {
	w := running()
	w.Machine.Annotations[v1alpha1.AnnotationPreserve] = v1alpha1.PreserveNow
	w.Machine.Annotations[v1alpha1.AnnotationPreserveProlonged] = now.Add(-50 * time.Hour).UTC().Format(time.RFC3339)
	w.Reach = reach.Fact{From: now.Add(-40 * time.Hour), Back: now.Add(-20 * time.Hour)}
	w.Machine = Decide(w).Machine
	was := w.Machine.Status.CurrentStatus.PreserveExpiryTime.Time
	w.Now = now.Add(time.Minute)
	w.Machine = Decide(w).Machine
	if got := w.Machine.Status.CurrentStatus.PreserveExpiryTime.Sub(was); got != 0 {
		t.Errorf("it is prolonged by %s", got)
	}
}
