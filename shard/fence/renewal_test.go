package fence

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/machine-controller-fleet/machine-controller-fleet/internal/runner"
)

// TestKeyNearTheFenceWaits for a renewal that moves the fence far enough, and is refused if the
// session is suspended instead, if the slot is lost meanwhile, or if the runner ends. The key is
// not in flight before it is admitted.
func TestKeyNearTheFenceWaits(t *testing.T) {
	for name, test := range map[string]struct {
		after time.Duration // since the renewal
		then  func(s *stand, end func())
		want  string
	}{
		"a renewal is not due yet":      {5*time.Second - 1, func(*stand, func()) {}, "admitted"},
		"no renewal":                    {5 * time.Second, func(*stand, func()) {}, "waits"},
		"a renewal":                     {5 * time.Second, func(s *stand, _ func()) { s.renew(9 * time.Second) }, "admitted"},
		"a renewal that was sent early": {5 * time.Second, func(s *stand, _ func()) { s.renew(passMargin) }, "waits"},
		"a renewal after the fence":     {9 * time.Second, func(s *stand, _ func()) { s.renew(9 * time.Second) }, "admitted"},
		"the fence, and no suspension":  {9 * time.Second, func(*stand, func()) {}, "waits"},
		"a suspension":                  {9 * time.Second, func(s *stand, _ func()) { s.Suspend() }, "refused"},
		"a suspension before the fence": {5 * time.Second, func(s *stand, _ func()) { s.Suspend() }, "refused"},
		"the end of the runner":         {5 * time.Second, func(_ *stand, end func()) { end() }, "refused"},
		"a renewal after the ownership": {5 * time.Second, func(s *stand, _ func()) {
			s.Stop(testSlot)
			s.EndLeading()
			s.renew(9 * time.Second)
		}, "refused"},
	} {
		for kind, gateOf := range map[string]func(s *stand) runner.Gate[string]{
			"slot": func(s *stand) runner.Gate[string] {
				return NewGate(s.Fence, func(string) (int, bool) { return testSlot, true })
			},
			"leader": func(s *stand) runner.Gate[string] { return NewLeaderGate[string](s.Fence) },
		} {
			t.Run(name+"/"+kind, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s := newStand(t)
					s.BeginLeading()
					s.MoveLeaderFence(s.Until().Add(time.Hour))
					ctx, end := context.WithCancel(t.Context())
					defer end()
					s.clock.Step(test.after)
					got := "waits"
					go func() {
						_, done, ok := gateOf(s).Admit(ctx, "key")
						got = "refused"
						if ok {
							got = "admitted"
							done()
						}
					}()
					synctest.Wait()
					if got == "waits" && s.Busy() > 0 {
						t.Errorf("a key that waits is in flight")
					}
					test.then(s, end)
					synctest.Wait()
					if got != test.want {
						t.Errorf("the key: %s, want %s", got, test.want)
					}
				})
			})
		}
	}
}

// TestKeyWaitsAlsoAfterAStop of the process, in which the fence has passed after it was found to be
// far enough: a key that is refused then would not be enqueued again if the renewal has succeeded.
func TestKeyWaitsAlsoAfterAStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStand(t)
		stop := 9 * time.Second
		gate := NewGate(s.Fence, func(string) (int, bool) {
			s.clock.Step(stop)
			stop = 0
			return testSlot, true
		})
		admitted := false
		go func() {
			_, done, ok := gate.Admit(t.Context(), "key")
			if admitted = ok; ok {
				done()
			}
		}()
		synctest.Wait()
		if admitted {
			t.Fatal("a key was admitted after the fence")
		}
		s.renew(9 * time.Second)
		synctest.Wait()
		if !admitted {
			t.Error("the key is not admitted after the renewal")
		}
	})
}
