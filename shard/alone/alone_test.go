package alone

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/fake"
	metadatafake "k8s.io/client-go/metadata/fake"
	clienttesting "k8s.io/client-go/testing"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
)

func TestMain(m *testing.M) {
	// The fakes' filter of watches may be about to send its last event when the watch ends.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("k8s.io/apimachinery/pkg/watch.(*filteredWatch).loop"))
}

// bench is an Alone before an API server with Leases that obeys field selectors and resourceVersions.
type bench struct {
	t        *testing.T
	client   *fake.Clientset
	metadata *metadatafake.FakeMetadataClient
	clock    *clocktesting.FakeClock
	alone    *Alone

	mu      sync.Mutex
	version int
	refused []string
}

func (b *bench) Admit(ctx context.Context, _ Key) (context.Context, func(), bool) {
	return ctx, func() {}, true
}

func nameOf(obj runtime.Object) fields.Set {
	lease, _ := obj.(*coordinationv1.Lease)
	return fields.Set{metav1.ObjectNameField: lease.Name}
}

// serve makes the fake clientset behave, of Leases, as an API server does.
func (b *bench) serve() {
	b.client.PrependReactor("list", "leases", func(action clienttesting.Action) (bool, runtime.Object, error) {
		list, _ := action.(clienttesting.ListAction)
		obj, err := b.client.Tracker().List(action.GetResource(), coordinationv1.SchemeGroupVersion.WithKind("Lease"), action.GetNamespace())
		leases, _ := obj.(*coordinationv1.LeaseList)
		leases.Items = slices.DeleteFunc(leases.Items, func(l coordinationv1.Lease) bool {
			return !list.GetListRestrictions().Fields.Matches(nameOf(&l))
		})
		return true, leases, err
	})
	b.client.PrependWatchReactor("leases", func(action clienttesting.Action) (bool, watch.Interface, error) {
		restricted, _ := action.(clienttesting.WatchAction)
		w, err := b.client.Tracker().Watch(action.GetResource(), action.GetNamespace())
		return true, watch.Filter(w, func(in watch.Event) (watch.Event, bool) {
			return in, restricted.GetWatchRestrictions().Fields.Matches(nameOf(in.Object))
		}), err
	})
	versioned := func(action clienttesting.Action) (bool, runtime.Object, error) {
		b.mu.Lock()
		defer b.mu.Unlock()
		write, _ := action.(clienttesting.UpdateAction) // a create is shaped alike
		lease, _ := write.GetObject().(*coordinationv1.Lease)
		stored, err := b.client.Tracker().Get(action.GetResource(), lease.Namespace, lease.Name)
		if old, ok := stored.(*coordinationv1.Lease); err == nil && ok && old.ResourceVersion != lease.ResourceVersion {
			return true, nil, apierrors.NewConflict(action.GetResource().GroupResource(), lease.Name, errors.New("it has changed"))
		}
		b.version++
		lease.ResourceVersion = strconv.Itoa(b.version)
		return false, nil, nil
	}
	b.client.PrependReactor("update", "leases", versioned)
	b.client.PrependReactor("create", "leases", versioned)
}

func newBench(t *testing.T, roots ...string) *bench {
	t.Helper()
	scheme := metadatafake.NewTestScheme()
	if err := metav1.AddMetaToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	b := &bench{t: t, client: fake.NewClientset(), clock: clocktesting.NewFakeClock(time.Unix(1e9, 0))}
	b.metadata = metadatafake.NewSimpleMetadataClient(scheme)
	for _, root := range roots {
		meta := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: root}}
		if err := b.metadata.Tracker().Create(v1alpha1.SchemeGroupVersion.WithResource("machinedeployments"), meta, "n"); err != nil {
			t.Fatal(err)
		}
	}
	b.serve()
	var err error
	b.alone, err = New(Config{
		Client: b.client, Metadata: b.metadata, Fleet: "fleet", SlotOf: func(string) int { return 3 }, Gate: b, Clock: b.clock,
		Changed: func(string) {}, Refused: func(refused Key, other string) {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.refused = append(b.refused, fmt.Sprintf("%s by %s", refused, other))
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	if err := b.alone.Start(ctx); err != nil {
		t.Fatal(err)
	}
	var running sync.WaitGroup
	running.Go(func() { b.alone.Run(ctx) })
	t.Cleanup(func() { stop(); running.Wait() })
	return b
}

// holds has somebody hold a Lease, or renew it.
func (b *bench) holds(name, holder string) {
	b.t.Helper()
	leases, duration := b.client.CoordinationV1().Leases("n"), int32(15)
	lease, err := leases.Get(b.t.Context(), name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		lease = &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: name}}
		lease.Spec.HolderIdentity, lease.Spec.LeaseDurationSeconds = &holder, &duration
		_, err = leases.Create(b.t.Context(), lease, metav1.CreateOptions{})
	} else if err == nil {
		lease.Spec.HolderIdentity = &holder
		_, err = leases.Update(b.t.Context(), lease, metav1.UpdateOptions{})
	}
	if err != nil {
		b.t.Fatal(err)
	}
}

func (b *bench) holders() (holders [2]string) {
	for i, name := range names() {
		if lease, err := b.client.CoordinationV1().Leases("n").Get(b.t.Context(), name, metav1.GetOptions{}); err == nil {
			holders[i] = holderOf(lease)
		}
	}
	return holders
}

// becomes waits for a condition, and lets no time pass by the fleet's clock.
func (b *bench) becomes(what string, condition func() bool) {
	b.t.Helper()
	for end := time.Now().Add(10 * time.Second); !condition(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			b.t.Fatalf("not seen: %s; holders %q", what, b.holders())
		}
	}
}

func TestAnEmptyNamespaceIsAskedForAndTaken(t *testing.T) {
	b := newBench(t, "root")
	if b.alone.Served("n", 7) {
		t.Error("served before the Leases are ours")
	}
	b.becomes("served", func() bool { return b.alone.Served("n", 7) })
	if got := b.holders(); got != [2]string{"fleet", "fleet"} {
		t.Errorf("holders %q", got)
	}
	if len(b.refused) > 0 || b.alone.KeptOut("n") || b.alone.KeptOut("without-leases") {
		t.Errorf("refused: %v, or kept out", b.refused)
	}
}

func TestWhoeverLivesKeepsUsOut(t *testing.T) {
	b := newBench(t, "root")
	b.holds(v1alpha1.LeaseManager, "mcm")
	b.becomes("the Lease", func() bool { return b.alone.see("n")[0].Exists })
	for range 20 { // 40 s of renewals
		b.holds(v1alpha1.LeaseManager, "mcm")
		version := strconv.Itoa(b.version)
		b.becomes("the renewal", func() bool {
			lease := b.alone.cached(0, "n")
			return lease.ResourceVersion == version && b.alone.see("n")[0].Since.Equal(b.clock.Now())
		})
		if b.clock.Step(2 * time.Second); b.alone.Served("n", 7) || !b.alone.KeptOut("n") {
			t.Fatal("served beside another, or not kept out")
		}
	}
	b.alone.Served("n", 8) // another slot with a root
	if want := []string{"n/slot 7 by mcm", "n/slot 8 by mcm"}; !slices.Equal(b.refused, want) || b.alone.CountRefused() != 1 {
		t.Errorf("refused %v, want %v", b.refused, want)
	}
	b.becomes("taken when it has died", func() bool {
		b.clock.Step(100 * time.Millisecond)
		return b.alone.Served("n", 7)
	})
}

func TestANamespaceWithoutRootsIsGivenUp(t *testing.T) {
	b := newBench(t)
	for _, name := range names() {
		b.holds(name, "fleet")
	}
	b.becomes("given up", func() bool { return b.holders() == [2]string{"", ""} })
	b.becomes("seen to be given up", func() bool { return !b.alone.Served("n", 7) })
	b.clock.Step(time.Hour)
	if b.alone.Served("n", 7) {
		t.Error("served without Leases")
	}
}
