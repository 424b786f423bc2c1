package main

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/apiserver"
)

// checkedFleet is the API server of a fleet of one replica with two slots. The replica runs from
// from until until. The first lists fail.
func checkedFleet(from, until time.Time, fails int) *apiserver.Server {
	s := apiserver.Recording()
	lease := func(namespace, fleet, name, holder string) {
		apiserver.Add(s, &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace, Labels: map[string]string{v1alpha1.LabelFleet: fleet}},
			Spec:       coordinationv1.LeaseSpec{HolderIdentity: &holder},
		})
	}
	lease("leases", "g", "f-session-f-1", "f-1_of-another-fleet")
	lease("other", "f", "f-session-f-1", "f-1_of-another-namespace")
	s.Fault(func(apiserver.Request) error {
		if fails--; fails >= 0 {
			return errors.New("connection refused")
		}
		now, starts := time.Now(), s.Get("leases", "leases", "f-leader") == nil
		for _, name := range []string{"f-leader", "f-session-f-0", "f-slot-000", "f-slot-001"} {
			if isSlot := strings.Contains(name, "slot"); !now.Before(from) && (starts || now.Before(until) && !isSlot) {
				lease("leases", "f", name, "f-0_abcde")
			}
		}
		return nil
	})
	return s
}

func TestCheckFleet(t *testing.T) {
	for name, c := range map[string]struct {
		from, until time.Duration
		fails       int
		replicas    int
		want        string // part of the error
	}{
		"it works":                     {until: time.Hour, replicas: 1},
		"it works later":               {from: 40 * time.Second, until: time.Hour, replicas: 1},
		"the API server answers later": {until: time.Hour, replicas: 1, fails: 3},
		"it never runs": {
			from: time.Hour, until: time.Hour, replicas: 1, want: "2 of 2 slots have no holder that lives",
		},
		"it has died":                            {replicas: 1, want: "session f-0_abcde does not renew its Lease f-session-f-0"},
		"it has died, and a list fails first":    {replicas: 1, fails: 1, want: "session f-0_abcde does not renew its Lease f-session-f-0"},
		"it has too few replicas":                {until: time.Hour, replicas: 2, want: "at least 2 replicas"},
		"the API server does not answer in time": {until: time.Hour, replicas: 1, fails: 1000, want: "connection refused"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				start := time.Now()
				client := checkedFleet(start.Add(c.from), start.Add(c.until), c.fails).Core()
				o := checkOptions{fleet: "f", namespace: "leases", slots: 2, leastReplicas: c.replicas, timeout: 2 * time.Minute}
				var out strings.Builder
				err := checkFleet(t.Context(), o, client, clock.RealClock{}, &out)
				switch {
				case c.want == "" && (err != nil || !strings.Contains(out.String(), "Fleet f works")):
					t.Errorf("want success, got %q, %v", out.String(), err)
				case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want) || out.String() != ""):
					t.Errorf("want an error with %q, got %q, %v", c.want, out.String(), err)
				case c.want != "" && time.Since(start) != o.timeout:
					t.Errorf("want the error after %s, got it after %s", o.timeout, time.Since(start))
				}
			})
		})
	}
}

// TestCheckFleetReportsATimeoutThatIsTooShort: with a time-out that is shorter than the time
// between two lists nothing is known.
func TestCheckFleetReportsATimeoutThatIsTooShort(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := checkedFleet(time.Now(), time.Now().Add(time.Hour), 0).Core()
		err := checkFleet(t.Context(), checkOptions{fleet: "f", namespace: "leases", slots: 2, timeout: time.Second}, client,
			clock.RealClock{}, &strings.Builder{})
		if err == nil || !strings.Contains(err.Error(), "increase --timeout") {
			t.Errorf("want an error that names --timeout, got %v", err)
		}
	})
}
