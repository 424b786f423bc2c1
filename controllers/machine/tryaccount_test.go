package machine

import (
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machine/cloud"
	"github.com/machine-controller-fleet/machine-controller-fleet/driver"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/fakecloud"
)

func TestAnAccountIsTriedWithACallThatChangesNothing(t *testing.T) {
	onBench(t, func(b *bench) {
		class := types.NamespacedName{Namespace: "n", Name: "c"}
		for name, fault := range map[string]*fakecloud.Fault{
			"works": nil, "refuses": {Code: driver.Unauthenticated}, "does not answer": {Code: driver.Unavailable},
		} {
			want := driver.NotFound
			b.cloud.Work()
			if fault != nil {
				want = fault.Code
				b.cloud.Fail(*fault)
			}
			if answer, err := b.process.TryAccount(b.Context(), class); err != nil || driver.CodeOf(answer) != want {
				b.Errorf("%s: got %v, %v, want %s", name, answer, err, want)
			}
		}
		calls := len(b.cloud.Calls(""))
		if reads := len(b.cloud.Calls(driver.OpStatus)); reads != 3 || calls != 3 {
			b.Errorf("%d calls, %d of them of %s; want 3", calls, reads, driver.OpStatus)
		}
		for _, missing := range []types.NamespacedName{
			{Namespace: "n", Name: "none"}, {Namespace: "", Name: "c"}, {Namespace: "n", Name: "../c"},
		} {
			if _, err := b.process.TryAccount(b.Context(), missing); err == nil {
				b.Errorf("class %s is missing, and there is no error", missing)
			}
		}
		if extra := len(b.cloud.Calls("")) - calls; extra > 0 {
			b.Errorf("%d calls with classes that are missing", extra)
		}
	})
}

func TestEndedCallsAreReportedWithTheirClass(t *testing.T) {
	type call struct {
		class string
		took  time.Duration
		code  driver.Code
	}
	var mu sync.Mutex
	seen := map[call]int{}
	onBench(t, func(b *bench) {
		b.called = func(class *v1alpha1.MachineClass, began time.Time, err error) {
			mu.Lock()
			defer mu.Unlock()
			seen[call{class.Name, time.Since(began), driver.CodeOf(err)}]++
		}
		b.takeOver(0)
		b.cloud.Fail(fakecloud.Fault{Hangs: true}, driver.OpCreate)
		b.create()
		b.pass(3 * time.Minute)
	})
	if seen[call{"c", cloud.Timeout, driver.DeadlineExceeded}] == 0 {
		t.Errorf("want creates that got no answer for %s, got %v", cloud.Timeout, seen)
	}
	if len(seen) != 1 && len(seen) != 2 {
		t.Errorf("want calls of two kinds at most, got %v", seen)
	}
}
