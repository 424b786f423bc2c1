package handback

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/apiserver"
)

// records returns a Lease that records a take-over; without the record if the value is empty.
func records(name, holder, takeOver string, labels map[string]string) *coordinationv1.Lease {
	l := lease("home", name, holder, labels)
	if takeOver != "" {
		l.Annotations = map[string]string{v1alpha1.AnnotationTakeOver: takeOver}
	}
	return l
}

// TestLeaveWaitsForTheTakeOverOfTheFleet: a session with --lease-take-over=1m is not dead after 15
// s, and for one with 5 s the wait is no longer than that.
func TestLeaveWaitsForTheTakeOverOfTheFleet(t *testing.T) {
	ofSession := map[string]string{v1alpha1.LabelFleet: "fleet", v1alpha1.LabelLease: v1alpha1.LeaseOfSession}
	for _, tc := range []struct {
		name   string
		leases []apiserver.Typed
		want   time.Duration
	}{
		{
			"recorded on the leader Lease",
			[]apiserver.Typed{records("fleet-leader", "", "1m0s", nil), records("fleet-session-a", "a_1", "", ofSession)},
			time.Minute,
		},
		{"recorded on the session Lease", []apiserver.Typed{records("fleet-session-a", "a_1", "5s", ofSession)}, 5 * time.Second},
		{"the longest", []apiserver.Typed{records("fleet-leader", "", "20s", nil), records("fleet-session-a", "a_1", "40s",
			ofSession), records("fleet-session-b", "b_1", "30s", ofSession)}, 40 * time.Second},
		{
			"recorded nowhere",
			[]apiserver.Typed{records("fleet-leader", "", "", nil), records("fleet-session-a", "a_1", "", ofSession)},
			15 * time.Second,
		},
		{
			"not that of an ended session",
			[]apiserver.Typed{records("fleet-session-a", "a_1", "5s", ofSession), records("fleet-session-b", "", "40s", ofSession)},
			5 * time.Second,
		},
		{
			"not that of another fleet",
			[]apiserver.Typed{records("other-leader", "", "1m0s", nil), records("fleet-session-a", "a_1", "5s", ofSession)},
			5 * time.Second,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			cfg, control := config(tc.leases...)
			clock, _ := cfg.Clock.(*clocktesting.FakeClock)
			start, announced := clock.Now(), time.Duration(0)
			cfg.OnWait = func(d time.Duration) { announced = d }
			var waited time.Duration
			control.Fault(func(r apiserver.Request) error {
				if r.What() == "update leases" {
					waited = clock.Since(start)
				}
				return nil
			})
			if report, err := leaveStepping(t, cfg, clock, time.Second); err != nil || report.Objects != 4 {
				t.Errorf("%+v, %v", report, err)
			}
			if waited != tc.want || announced != tc.want {
				t.Errorf("waited %s and announced %s, want %s", waited, announced, tc.want)
			}
		})
	}
}

func TestLeaveRefusesAnInvalidTakeOver(t *testing.T) {
	ofSession := map[string]string{v1alpha1.LabelFleet: "fleet", v1alpha1.LabelLease: v1alpha1.LeaseOfSession}
	for _, value := range []string{"a minute", "0s", "-1s"} {
		cfg, _ := config(records("fleet-leader", "", value, nil), records("fleet-session-a", "a_1", "", ofSession))
		report, err := Leave(t.Context(), cfg)
		if err == nil || !strings.Contains(err.Error(), "fleet-leader") || !strings.Contains(err.Error(), value) || report != (Report{}) {
			t.Errorf("%q: %+v, %v, want an error that names the Lease and the value", value, report, err)
		}
	}
}

func TestLeaveRefusesWithoutTheLeaderLease(t *testing.T) {
	ofSession := map[string]string{v1alpha1.LabelFleet: "fleet", v1alpha1.LabelLease: v1alpha1.LeaseOfSession}
	cfg, control := config(records("fleet-session-a", "a_1", "5s", ofSession))
	control.Refuse("get leases", apierrors.NewInternalError(errors.New("the store is unavailable")))
	if report, err := Leave(t.Context(), cfg); err == nil || report != (Report{}) {
		t.Errorf("%+v, %v, want the error of the API server", report, err)
	}
}

// leaveStepping calls Leave, and advances the clock by one step whenever it waits.
func leaveStepping(t *testing.T, cfg Config, clock *clocktesting.FakeClock, step time.Duration) (Report, error) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	defer running.Wait()
	defer stop()
	running.Go(func() {
		for ctx.Err() == nil {
			if clock.HasWaiters() {
				clock.Step(step)
			}
		}
	})
	return Leave(ctx, cfg)
}
