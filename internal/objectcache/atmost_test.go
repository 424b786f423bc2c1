package objectcache

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
)

// An API server may send pages without end, and objects of any size, also of kinds that do not know
// theirs.
func TestPagesAtMost(t *testing.T) {
	page := &v1alpha1.MachineList{Items: make([]v1alpha1.Machine, 1)}
	page.Items[0].Status.LastKnownState = strings.Repeat("x", 8<<10)
	of := func(most int64) func(context.Context, metav1.ListOptions) (*v1alpha1.MachineList, error) {
		return PagesAtMost(most, func(context.Context, metav1.ListOptions) (*v1alpha1.MachineList, error) { return page, nil })
	}
	for most, want := range map[int64]int{0: 100, 32 << 10: 3} {
		list, pages := of(most), 0
		for ; pages < 100; pages++ {
			if _, err := list(t.Context(), metav1.ListOptions{}); err != nil {
				break
			}
		}
		if pages != want {
			t.Errorf("at most %d bytes: %d pages of 9 KiB, want %d", most, pages, want)
		}
	}
}

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
