package machine

import (
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machine/lifecycle"
	"github.com/machine-controller-fleet/machine-controller-fleet/driver"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/objectcache"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/runner"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/fakecloud"
)

// A panic that follows another one before the cache shows the first is one more in a row. One of a
// machine that is gone is not recorded.
func TestPanicsInARowAreCountedInSpiteOfALateCache(t *testing.T) {
	onBench(t, func(b *bench) {
		b.end()
		b.create(withoutDeadline)
		b.server.ShowIn(objectcache.NewView()) // no other change is shown to the process
		key := types.NamespacedName{Namespace: "n", Name: "m"}
		for _, fault := range []string{"a defect", "another"} {
			b.process.machines.setAside(b.Context(), key, &runner.PanicError{Value: fault})
		}
		cause, wait := lifecycle.WhileSetAside(b.get(), time.Now())
		if cause == nil || wait != 2*time.Minute || !strings.Contains(cause.Message, "panicked 2 times in a row: another") {
			t.Errorf("set aside for %s with %+v, want 2 min for the second panic in a row", wait, cause)
		}
		want := []string{"Warning " + v1alpha1.EventSetAside}
		if got := b.reported.List(); !slices.Equal(got, want) {
			t.Errorf("Events %v, want %v", got, want)
		}
		before := len(b.server.Requests())
		b.process.machines.setAside(b.Context(), types.NamespacedName{Namespace: "n", Name: "gone"}, &runner.PanicError{Value: "a defect"})
		if got := b.server.Requests()[before:]; len(got) > 0 {
			t.Errorf("requests %v for a machine that is gone", got)
		}
	})
}

// panics has each call of the driver panic. It returns when it was called, counted from now.
func (b *bench) panics() (calls func() []time.Duration) {
	start := time.Now()
	var at []time.Duration
	b.cloud.FailIf(func(driver.Op) *fakecloud.Fault {
		at = append(at, time.Since(start))
		panic("a defect")
	})
	return func() []time.Duration { return at }
}

// A machine whose processing panics is set aside for longer and longer, whichever replica holds its
// slot, and its status reports that; when its processing does not panic any more, the machine is
// processed as if it had never panicked.
func TestAMachineThatPanicsIsSetAside(t *testing.T) {
	onBench(t, func(b *bench) {
		calls := b.panics()
		b.create(withoutDeadline)
		b.pass(6 * time.Minute)
		want := []time.Duration{0, time.Minute, 3 * time.Minute}
		if got := calls(); !slices.Equal(got, want) {
			t.Errorf("tried at %v, want %v", got, want)
		}
		last := b.get().Status.LastOperation
		if last.ErrorCode != driver.Internal.String() || !strings.Contains(last.Description, "panicked 3 times in a row: a defect") {
			t.Errorf("it says %+v", last)
		}
		b.takeOver(time.Second) // at 6 min 1 s
		b.pass(50 * time.Second)
		if got := calls(); len(got) != 3 {
			t.Errorf("the next owner has tried it at once: %v", got)
		}
		b.pass(20 * time.Second)
		if got := calls(); len(got) != 4 || got[3] != 7*time.Minute {
			t.Errorf("tried at %v, want at 7 min as well", got)
		}
		b.cloud.Work()
		b.pass(8*time.Minute + 5*time.Second)
		if phase := b.get().Status.CurrentStatus.Phase; phase != v1alpha1.MachineRunning {
			t.Errorf("it is %s when it can be processed again", phase)
		}
		b.pass(10 * time.Minute)
		if value, stands := b.get().Annotations[v1alpha1.AnnotationSetAside]; stands {
			t.Errorf("the annotation is still set: %s", value)
		}
	})
}
