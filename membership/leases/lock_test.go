package leases

import (
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/utils/clock"

	"github.com/machine-controller-fleet/machine-controller-fleet/membership"
)

func TestOneHasTheLock(t *testing.T) {
	folder := t.TempDir()
	first, err := AcquireLock(folder)
	if err != nil || first == nil {
		t.Fatalf("want the free lock taken, got %v", err)
	}
	if second, err := AcquireLock(folder); err != nil || second != nil {
		t.Errorf("taken twice: %v, %v", second, err)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	third, err := AcquireLock(folder)
	if err != nil || third == nil {
		t.Fatalf("want the released lock taken, got %v", err)
	}
	_ = third.Close()
	if _, err := AcquireLock(folder + "/none"); err == nil {
		t.Error("no error for a folder that does not exist")
	}
}

// TestWatchdogExitsOnTime has the fence at 9 s, and 2 s after it for what is in flight.
func TestWatchdogExitsOnTime(t *testing.T) {
	for _, tc := range []struct {
		name     string
		busy     func(at time.Duration) int
		beats    bool
		earliest time.Duration // of the end; 0: none in a minute
	}{
		{"nothing is in flight", func(time.Duration) int { return 0 }, true, 0},
		{"all ends in time", func(at time.Duration) int { return max(0, int(11*time.Second-at)) }, true, 0},
		{"something does not end", func(time.Duration) int { return 1 }, true, 11 * time.Second},
		{"the count hangs", func(time.Duration) int { time.Sleep(10 * time.Second); return 0 }, true, 11 * time.Second},
		{"the loop hangs", func(time.Duration) int { return 0 }, false, 30 * time.Second},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				begun := time.Now()
				now := func() membership.Moment { return membership.Moment{Monotonic: time.Since(begun), Wall: time.Now()} }
				fence := now().Add(9 * time.Second)
				var exited time.Duration
				dog := Watchdog{
					Clock: clock.RealClock{}, Now: now, After: 2 * time.Second, Silence: 30 * time.Second,
					Fence: func() membership.Moment {
						if time.Since(begun) >= 9*time.Second {
							return membership.Moment{} // suspended
						}
						return fence
					},
					Busy: func() int { return tc.busy(time.Since(begun)) },
					Beat: func() membership.Moment {
						if tc.beats {
							return now()
						}
						return membership.Moment{Wall: begun}
					},
					Exit: func(string) { exited = time.Since(begun) },
				}
				go dog.Run(t.Context())
				time.Sleep(time.Minute)
				synctest.Wait()
				if tc.earliest == 0 && exited != 0 || tc.earliest != 0 && (exited < tc.earliest || exited > tc.earliest+time.Second) {
					t.Errorf("exited at %s, want %s", exited, tc.earliest)
				}
			})
		})
	}
}
