package turns

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestTimePassesWhileOthersWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var m Mutex
		m.Lock()
		if m.TryLock() {
			t.Error("a lock that is held was taken")
		}
		got := make(chan time.Duration, 1)
		began := time.Now()
		go func() {
			m.Lock()
			got <- time.Since(began)
		}()
		time.Sleep(time.Minute)
		m.Unlock()
		if after := <-got; after != time.Minute {
			t.Errorf("the lock was taken after %s, want one minute", after)
		}
		m.Unlock()
		if !m.TryLock() {
			t.Error("a lock that is not held was not taken")
		}
	})
}
