package objectcache

import (
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/watch"
)

// The bubble fails if a goroutine is left.
func TestWatchThatIsStoppedWithAnEventLeavesNothing(t *testing.T) {
	synctest.Test(t, func(*testing.T) {
		inner := watch.NewFake()
		w := mapEvents(inner, func(event watch.Event) watch.Event { return event })
		inner.Add(&corev1.Pod{})
		synctest.Wait()
		w.Stop()
	})
}
