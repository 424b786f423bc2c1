package remediation

import (
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/clock"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/deletion"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/deletion/receipt"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/disruption"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/machinefacts"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/apiserver"
)

// budgeted is a fleet with a deletion budget, and a deployment d with ten machines.
type budgeted struct {
	*bench

	set   *v1alpha1.MachineSet
	core  *apiserver.Server
	limit atomic.Value // the annotation of the Namespace
}

// Known reports that the limit is known.
func (*budgeted) Known() bool { return true }

// Annotation returns the limit.
func (b *budgeted) Annotation(_, key string) (string, bool) {
	limit, _ := b.limit.Load().(string)
	return limit, key == v1alpha1.AnnotationMaxDeletions
}

func withBudget(t *testing.T, limit string, f func(b *budgeted)) {
	t.Helper()
	d := deployment()
	during(t, []runtime.Object{d}, func(inner *bench) {
		b := &budgeted{bench: inner, set: set("s", d, 10), core: apiserver.Recording()}
		b.limit.Store(limit)
		for _, c := range []*Config{&b.cfg, &b.deployments.cfg, &b.sets.cfg} {
			c.Budget = &deletion.Budget{Namespaces: b, Leases: b.core.Core().CoordinationV1(), Clock: clock.RealClock{}}
		}
		for _, obj := range []any{class(), d, b.set} {
			b.feed(obj)
		}
		b.show()
		b.Breakers().Receive(nil, []string{"r"})
		b.wait(time.Minute)
		f(b)
	})
}

// show has these machines be unhealthy from now on, and all others healthy.
func (b *budgeted) show(unhealthy ...int) {
	for i := range 10 {
		phase := v1alpha1.MachineRunning
		if slices.Contains(unhealthy, i) {
			phase = v1alpha1.MachineUnknown
		}
		b.join(machine(b.set, i, phase, time.Now()))
	}
}

// reserve has others reserve deletions now.
func (b *budgeted) reserve(keys ...string) {
	l, _, _ := receipt.Ledger{}.Reserve(time.Now(), keys, receipt.MaxLimit)
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{
		Namespace: "n", Name: v1alpha1.LeaseDeletions, Annotations: map[string]string{v1alpha1.AnnotationDeletions: l.Text()},
	}}
	apiserver.Add(b.core, lease)
}

// wantReplaced checks which machine has a disruption; "" for none.
func (b *budgeted) wantReplaced(names ...string) {
	b.Helper()
	if got := disruptions(b.T, b.deployment()); !slices.Equal(got, names) {
		b.Errorf("disruptions for %q, want %q", got, names)
	}
}

// While others have used the budget, of which sweeps of orphans are a part, the root has the
// condition and its unhealthy machine waits. When the first reservation ends it is replaced,
// without another event.
func TestExhaustedBudgetHoldsReplacements(t *testing.T) {
	withBudget(t, "2", func(b *budgeted) {
		if n := len(b.core.Requests()); n > 0 {
			t.Errorf("%d requests while nothing is unhealthy", n)
		}
		b.show(0)
		b.reserve("other@1", "orphan")
		b.wait(11 * time.Minute)
		b.wantReplaced()
		c := machinefacts.MachineDeploymentCondition(&b.deployment().Status, v1alpha1.MachineDeploymentDeletionsHeld)
		if c == nil || c.Status != corev1.ConditionTrue || c.Reason != v1alpha1.ReasonDeletionBudget ||
			!strings.Contains(c.Message, "to be replaced: 1; the deletion budget of the Namespace is exhausted: within an hour at most 2 ") {
			t.Errorf("condition %+v", c)
		}
		if n := b.Waiting(); n != 1 {
			t.Errorf("%d machines wait, want 1", n)
		}
		b.wait(44 * time.Minute)
		b.join(machine(b.set, 1, v1alpha1.MachineUnknown, time.Now())) // it is decided on later than the reservation ends
		b.wait(4 * time.Minute)
		b.wantReplaced()
		b.wait(time.Minute + time.Second)
		b.wantReplaced("s-0")
		if c := b.deployment().Status.Conditions; len(c) > 0 || b.Waiting() != 0 {
			t.Errorf("conditions %+v are left, and %d machines wait", c, b.Waiting())
		}
		events := b.events()
		if len(events) != 2 || !strings.HasPrefix(events[0], "d Warning DeletionsHeld: Unhealthy machines") ||
			!strings.HasPrefix(events[1], "d Normal DeletionsReleased:") {
			t.Errorf("Events %q", events)
		}
	})
}

// A replacement is reserved under a separate name: the next failure of the same machine counts
// again.
func TestReplacementsUseTheBudget(t *testing.T) {
	withBudget(t, "1", func(b *budgeted) {
		b.show(0)
		b.wait(11 * time.Minute)
		b.wantReplaced("s-0")
		b.show()
		b.wait(time.Minute)
		b.show(0)
		b.wait(30 * time.Minute)
		b.wantReplaced()
		b.limit.Store("2") // a person raises it
		b.HoldChanged("n")
		b.wait(time.Second)
		b.wantReplaced("s-0")
	})
}

// What was reserved and not recorded, because the write failed or the process ended, counts once.
func TestReplacementWhoseRecordFailsCountsOnce(t *testing.T) {
	withBudget(t, "1", func(b *budgeted) {
		failures := 0
		b.api.PrependReactor("patch", "machinedeployments", func(clienttesting.Action) (bool, runtime.Object, error) {
			failures++
			return failures <= 2, nil, errors.New("no answer")
		})
		b.show(0)
		b.wait(12 * time.Minute)
		b.wantReplaced("s-0")
		if failures < 3 {
			t.Errorf("%d writes", failures)
		}
	})
}

// Nothing is replaced while the reservations cannot be read.
func TestUnknownBudgetHoldsReplacements(t *testing.T) {
	withBudget(t, "5", func(b *budgeted) {
		b.core.Refuse("get leases", errors.New("no answer"))
		b.show(0)
		b.wait(30 * time.Minute)
		b.wantReplaced()
		b.core.Fault(nil)
		b.wait(10 * time.Minute)
		b.wantReplaced("s-0")
	})
}

// The machines of a root that is being deleted are deleted with it, and use up no budget.
func TestDeletedRootReservesNothing(t *testing.T) {
	withBudget(t, "5", func(b *budgeted) {
		d := b.deployment().DeepCopy()
		now := metav1.Now()
		d.DeletionTimestamp = &now
		b.feed(d)
		b.show(0)
		b.wait(30 * time.Minute)
		if n := len(b.core.Requests()); n > 0 {
			t.Errorf("%d requests", n)
		}
		b.wantReplaced()
	})
}

// Where no machine has to be replaced, a budget that is not known is no error.
func TestBudgetOfARootAtRest(t *testing.T) {
	b := newBench(t)
	defer b.end()
	b.deployments.cfg.Budget = &deletion.Budget{Namespaces: &namespaces{}}
	if _, _, err := b.deployments.decide(t.Context(), deployment(), disruption.World{}); err != nil {
		t.Error(err)
	}
}

// An annotation of the Namespace that is no number is reported as thresholds are that are ignored.
func TestInvalidBudgetIsReported(t *testing.T) {
	withBudget(t, "many", func(b *budgeted) {
		c := machinefacts.MachineDeploymentCondition(&b.deployment().Status, v1alpha1.MachineDeploymentCircuitBreakerOpen)
		if c == nil || c.Status != corev1.ConditionFalse || c.Reason != v1alpha1.ReasonThresholdsIgnored ||
			!strings.HasPrefix(c.Message, "The annotation "+v1alpha1.AnnotationMaxDeletions) {
			t.Errorf("condition %+v", c)
		}
		if events := b.events(); len(events) != 1 || !strings.HasPrefix(events[0], "d Warning ThresholdsIgnored: The annotation") {
			t.Errorf("Events %q", events)
		}
		b.show(0)
		b.wait(11 * time.Minute)
		b.wantReplaced("s-0")
		b.limit.Store("0")
		b.HoldChanged("n")
		b.wait(time.Second)
		if c := b.deployment().Status.Conditions; len(c) > 0 {
			t.Errorf("conditions %+v are left", c)
		}
	})
}
