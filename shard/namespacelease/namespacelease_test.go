package namespacelease

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/apiserver"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/bubbles"
	"github.com/machine-controller-fleet/machine-controller-fleet/shard/namespacelease/policy"
)

func TestMain(m *testing.M) { bubbles.Main(m) }

// bench is NamespaceLeases with an API server.
type bench struct {
	t      *testing.T
	server *apiserver.Server
	clock  *clocktesting.FakeClock
	leases *NamespaceLeases

	mu       sync.Mutex
	admitted []Key
	refused  []string
	roots    map[types.UID]bool // with an Event for a holder, when it is reported
	closed   map[int]bool       // slots not held by this replica
}

func (b *bench) Admit(ctx context.Context, key Key) (context.Context, func(), bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.admitted = append(b.admitted, key)
	return ctx, func() {}, !b.closed[key.Slot]
}

// newBench returns a bench whose NamespaceLeases run.
func newBench(t *testing.T, roots ...string) *bench {
	t.Helper()
	b := benchOf(t, roots...)
	ctx, stop := context.WithCancel(t.Context())
	if err := b.leases.Start(ctx); err != nil {
		t.Fatal(err)
	}
	var running sync.WaitGroup
	running.Go(func() { b.leases.Run(ctx) })
	t.Cleanup(func() { stop(); running.Wait() })
	return b
}

// unstarted returns a bench whose NamespaceLeases do not run before the test ends.
func unstarted(t *testing.T, roots ...string) *bench {
	t.Helper()
	b := benchOf(t, roots...)
	t.Cleanup(func() { // t.Context has ended: this ends the queue
		b.leases.Run(t.Context())
	})
	return b
}

func benchOf(t *testing.T, roots ...string) *bench {
	t.Helper()
	b := &bench{
		t: t, server: apiserver.Recording(), clock: clocktesting.NewFakeClock(time.Unix(1e9, 0)), closed: map[int]bool{},
		roots: map[types.UID]bool{},
	}
	for _, root := range roots {
		b.root(root)
	}
	var err error
	b.leases, err = New(Config{
		Client: b.server.Core(), Metadata: b.server.Metadata(), Fleet: "fleet", SlotOf: func(string) int { return 3 }, Gate: b, Clock: b.clock,
		Refused: func(refused Key, why Refusal, known map[types.UID]bool) map[types.UID]bool {
			b.mu.Lock()
			defer b.mu.Unlock()
			if known == nil || !maps.Equal(known, b.roots) {
				b.refused = append(b.refused, fmt.Sprintf("%s by %s", refused, why.Other))
			}
			return maps.Clone(b.roots)
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// root creates a root in the namespace n.
func (b *bench) root(name string) {
	apiserver.Add(b.server, &v1alpha1.MachineDeployment{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: name}})
}

// sees returns the Leases of n in the watch's cache.
func (b *bench) sees() [2]policy.Lease {
	leases, _ := b.leases.see("n")
	return leases
}

// served calls Served for slot 7 of n, and waits until no goroutine can continue. It is for tests
// in a bubble of synctest.
func (b *bench) served(want bool) {
	b.t.Helper()
	if got := b.leases.Served("n", 7); got != want {
		b.t.Errorf("served: %t, want %t", got, want)
	}
	synctest.Wait()
}

// setHolder has a holder hold a Lease, or renew it, and returns its version.
func (b *bench) setHolder(name, holder string) string {
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: name}}
	lease.Spec.HolderIdentity, lease.Spec.LeaseDurationSeconds = &holder, new(int32(15))
	return apiserver.Add(b.server, lease).ResourceVersion
}

func (b *bench) holders() (holders [2]string) {
	for i, name := range names() {
		if lease := apiserver.Read[coordinationv1.Lease](b.server, "leases", "n", name); lease != nil {
			holders[i] = holderOf(lease)
		}
	}
	return holders
}

// hangs is how long becomes waits for goroutines in real time: what is not seen then hangs, also on
// a busy machine.
const hangs = 10 * time.Minute

// becomes waits for a condition, without advancing the fleet's clock.
func (b *bench) becomes(what string, condition func() bool) {
	b.t.Helper()
	for end := time.Now().Add(hangs); !condition(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			b.t.Fatalf("not seen: %s; holders %q", what, b.holders())
		}
	}
}

func TestFreeLeasesOfANamespaceAreAcquired(t *testing.T) {
	b := newBench(t, "root")
	if b.leases.Holds("n") || len(b.leases.Held()) > 0 || b.leases.Served("n", 7) {
		t.Error("served before the fleet holds the Leases")
	}
	b.becomes("served", func() bool { return b.leases.Served("n", 7) })
	if got := b.leases.Held(); !b.leases.Holds("n") || !slices.Equal(got, []string{"n"}) {
		t.Errorf("the fleet holds %v, want n", got)
	}
	if got := b.holders(); got != [2]string{"fleet", "fleet"} {
		t.Errorf("holders %q", got)
	}
	if len(b.refused) > 0 || b.leases.KeptOut("n") || b.leases.KeptOut("without-leases") {
		t.Errorf("refused: %v, or kept out", b.refused)
	}
}

func TestLiveHolderKeepsTheNamespace(t *testing.T) {
	b := newBench(t, "root")
	b.setHolder(v1alpha1.LeaseManager, "mcm")
	b.becomes("the Lease", func() bool { return b.sees()[0].Exists })
	for range 20 { // 40 s of renewals
		version := b.setHolder(v1alpha1.LeaseManager, "mcm")
		b.becomes("the renewal", func() bool {
			lease := b.leases.cached(0, "n")
			return lease.ResourceVersion == version && b.sees()[0].Since.Equal(b.clock.Now())
		})
		if b.clock.Step(2 * time.Second); b.leases.Served("n", 7) || !b.leases.KeptOut("n") {
			t.Fatal("served although another manager holds the Leases, or not kept out")
		}
		if held := b.leases.Held(); b.leases.Holds("n") || len(held) > 0 {
			t.Fatalf("holds %v, and another manager holds the Leases", held)
		}
	}
	b.leases.Served("n", 8) // another slot with a root
	if want := []string{"n/slot 7 by mcm", "n/slot 8 by mcm"}; !slices.Equal(b.refused, want) || b.leases.CountRefused() != 1 {
		t.Errorf("refused %v, want %v", b.refused, want)
	}
	b.becomes("taken when it has died", func() bool {
		b.clock.Step(100 * time.Millisecond)
		return b.leases.Served("n", 7)
	})
}

func TestReleasedNamespaceIsServedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		for _, name := range names() {
			b.setHolder(name, "fleet")
		}
		synctest.Wait()
		b.served(false)
		if got := b.holders(); got != [2]string{"", ""} {
			t.Fatalf("holders without roots: %q", got)
		}
		b.clock.Step(time.Hour)
		b.served(false)
		if got := b.holders(); got != [2]string{"", ""} {
			t.Errorf("taken without roots, by %q", got)
		}
		b.root("root")
		b.served(false)
		b.served(true)
		if got := b.holders(); got != [2]string{"fleet", "fleet"} || len(b.refused) > 0 {
			t.Errorf("holders %q, refused %v", got, b.refused)
		}
	})
}

func TestNamespaceWhoseManagerDiedBeforeItHadRootsIsServed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		for _, name := range names() {
			b.setHolder(name, "mcm")
		}
		synctest.Wait()
		b.clock.Step(policy.Unchanged) // the holder of the namespace's slot lists roots and finds none
		synctest.Wait()
		if got := b.holders(); got != [2]string{"mcm", "mcm"} {
			t.Errorf("taken without roots, by %q", got)
		}
		b.root("root")
		b.served(false)
		b.served(true)
		if len(b.refused) > 0 {
			t.Errorf("refused: %v", b.refused)
		}
	})
}

// A replica with work in a namespace acquires its Leases when the other manager has died, although
// no event arrives then, Served is not called again, and no replica holds the slot of the
// namespace's name.
func TestLeasesOfADeadManagerAreAcquiredAtTheirDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, "root")
		b.mu.Lock()
		b.closed[3] = true
		b.mu.Unlock()
		b.setHolder(v1alpha1.LeaseManager, "mcm")
		synctest.Wait()
		b.served(false)
		if b.leases.CountRefused() != 1 {
			t.Error("not counted as refused")
		}
		b.clock.Step(policy.Unchanged - time.Millisecond)
		synctest.Wait()
		if got := b.holders(); got != [2]string{"mcm", ""} {
			t.Errorf("taken before the deadline: %q", got)
		}
		b.mu.Lock()
		b.roots["later"] = true
		b.mu.Unlock()
		b.clock.Step(time.Millisecond)
		synctest.Wait()
		if want := []string{"n/slot 7 by mcm"}; !slices.Equal(b.refused, want) {
			t.Errorf("refused %v, want %v: the other manager is dead when there is a later root", b.refused, want)
		}
		if got := b.holders(); got != [2]string{"fleet", "fleet"} {
			t.Errorf("holders at the deadline: %q", got)
		}
		if b.leases.CountRefused() > 0 {
			t.Error("still counted as refused")
		}
	})
}

// A root that is created after its slot was reported has not been reconciled before: nothing else
// reports the other manager on it.
func TestOtherManagerIsReportedOnLaterRoots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, "root")
		renew := func() {
			b.setHolder(v1alpha1.LeaseManager, "mcm")
			synctest.Wait()
		}
		renew()
		b.served(false)
		b.mu.Lock()
		b.roots["later"] = true
		b.mu.Unlock()
		for range 15 {
			b.clock.Step(policy.Unchanged / 10)
			renew()
		}
		b.mu.Lock()
		defer b.mu.Unlock()
		if want := []string{"n/slot 7 by mcm", "n/slot 7 by mcm"}; !slices.Equal(b.refused, want) {
			t.Errorf("refused %v, want %v", b.refused, want)
		}
	})
}

// The handler may not have recorded yet when a Lease was renewed that the cache already shows.
func TestLeaseRenewedBeforeItsHandlerRunsIsNotExpired(t *testing.T) {
	b := newBench(t)
	b.setHolder(v1alpha1.LeaseManager, "mcm")
	b.becomes("the Lease", func() bool { return b.sees()[0].Exists })
	b.clock.Step(time.Hour)
	renewed := b.leases.cached(0, "n").DeepCopy()
	renewed.ResourceVersion = "renewed"
	if err := b.leases.informers[0].GetStore().Update(renewed); err != nil { // its handler has not run yet
		t.Fatal(err)
	}
	if !b.leases.KeptOut("n") {
		t.Error("the Lease counts as expired")
	}
}

func TestNamespaceCreatedAnewIsServed(t *testing.T) {
	b := newBench(t, "root")
	refused := apierrors.NewForbidden(coordinationv1.Resource("leases"), "", errors.New("the namespace is being terminated"))
	refused.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
	b.server.Refuse("create leases", refused)
	b.becomes("served to its end", func() bool { return b.leases.Served("n", 7) })
	if got := b.holders(); got != [2]string{"", ""} {
		t.Errorf("Leases were created where the namespace ends: %q", got)
	}
	b.server.Fault(nil)
	b.becomes("taken", func() bool {
		b.leases.Served("n", 7) // as long as there is work
		b.clock.Step(time.Second)
		return b.holders() == [2]string{"fleet", "fleet"}
	})
}

func TestNamespaceWithoutRootsIsReleased(t *testing.T) {
	b := newBench(t)
	for _, name := range names() {
		b.setHolder(name, "fleet")
	}
	b.becomes("given up", func() bool { return b.holders() == [2]string{"", ""} })
	b.becomes("seen to be given up", func() bool { return !b.leases.Served("n", 7) })
	b.clock.Step(time.Hour)
	if b.leases.Served("n", 7) {
		t.Error("served without Leases")
	}
}
