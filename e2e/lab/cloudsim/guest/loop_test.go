package guest

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"k8s.io/utils/clock"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// run runs a loop in a bubble while test runs.
func run(t *testing.T, step Step[string], test func(l *Loop[string])) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		l := NewLoop(clock.RealClock{}, step)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			l.Run(ctx, 4)
		}()
		test(l)
		cancel()
		<-ended
	})
}

func TestStepsWhenDue(t *testing.T) {
	var steps []time.Duration
	var began time.Time
	again := []time.Duration{0, 5 * time.Second, Never}
	run(t, func(context.Context, string) time.Duration {
		steps = append(steps, time.Since(began))
		return again[len(steps)-1]
	}, func(l *Loop[string]) {
		began = time.Now()
		l.WakeAfter("a", time.Second)
		time.Sleep(time.Hour)
		synctest.Wait()
	})
	if len(steps) != 3 || steps[0] != time.Second || steps[1] != time.Second || steps[2] != 6*time.Second {
		t.Errorf("steps after %v, want 1s, 1s and 6s", steps)
	}
}

// A key that is woken during its step is stepped again, and not at the same time.
func TestStepsDoNotOverlap(t *testing.T) {
	steps, busy := 0, false
	run(t, func(context.Context, string) time.Duration {
		if busy {
			t.Error("steps overlap")
		}
		busy = true
		time.Sleep(time.Second)
		busy = false
		steps++
		return Never
	}, func(l *Loop[string]) {
		l.Wake("a")
		time.Sleep(time.Second / 2)
		l.Wake("a")
		l.Wake("a")
		time.Sleep(time.Minute)
		synctest.Wait()
	})
	if steps != 2 {
		t.Errorf("%d steps, want 2", steps)
	}
}

func TestStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := NewLoop(clock.RealClock{}, func(context.Context, string) time.Duration {
			t.Error("a step after the end")
			return Never
		})
		l.Wake("a")
		l.Stop()
		l.Stop()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		l.Run(ctx, 1)
	})
}
