package autoscaler

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/autoscaler/externalgrpc"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/autoscaler/groups"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/apiserver"
)

func nodesNamed(names ...string) (all []groups.Node) {
	for _, node := range nodes(names...) {
		all = append(all, decodeNode(node))
	}
	return all
}

// batch sends a first call, which has its turn, and then others, which wait; and returns their
// errors, and how often each request was sent.
func (f *fleet) batch(t *testing.T, w *writer, fault func(apiserver.Request) error, calls ...[]groups.Node) ([]error, map[string]int) {
	t.Helper()
	release := make(chan struct{})
	var mu sync.Mutex
	sent := map[string]int{}
	f.api.Fault(func(r apiserver.Request) error {
		if r.What() == "get machinedeployments" {
			<-release
		}
		mu.Lock()
		sent[r.What()]++
		mu.Unlock()
		return fault(r)
	})
	errs := make([]error, len(calls))
	for i, call := range calls {
		go func() {
			defer func() {
				if failure := recover(); failure != nil {
					errs[i] = fmt.Errorf("panic: %v", failure)
				}
			}()
			errs[i] = w.deleteNodes(t.Context(), identity{"n", "autoscaler"}, "pool", call)
		}()
		synctest.Wait()
	}
	close(release)
	synctest.Wait()
	return errs, sent
}

func noFault(apiserver.Request) error { return nil }

// TestADeletionWhoseClientHasLeftHasNoEffect: it waited for its turn.
func TestADeletionWhoseClientHasLeftHasNoEffect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, pool("pool", 3)...)
		w, who := f.server().service.writer, identity{"n", "autoscaler"}
		unlock, err := w.deletions.turns.Lock(t.Context(), groupKey{who, "pool"})
		if err != nil {
			t.Fatal(err)
		}
		ctx, leave := context.WithCancel(t.Context())
		go func() { err = w.deleteNodes(ctx, who, "pool", nodesNamed("pool-1")) }()
		synctest.Wait()
		leave()
		synctest.Wait()
		if !errors.Is(err, context.Canceled) {
			t.Errorf("the client that has left got %v", err)
		}
		unlock()
		if err := w.deleteNodes(t.Context(), who, "pool", nodesNamed("pool-0")); err != nil {
			t.Error(err)
		}
		f.wantPool(2, "pool-0")
	})
}

// TestABatchReadsOnce: calls that name the same Machines, or Nodes that are not known.
func TestABatchReadsOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, pool("pool", 5)...)
		same := nodesNamed("pool-1", "pool-2")
		calls := [][]groups.Node{nodesNamed("pool-0"), same, same, same, nodesNamed("x"), nodesNamed("y")}
		slow := func(r apiserver.Request) error {
			if r.What() == "list machines" {
				f.clock.SetTime(f.clock.Now().Add(2 * refreshAge))
			}
			return nil
		}
		errs, sent := f.batch(t, f.server().service.writer, slow, calls...)
		for i, err := range errs {
			want := codes.OK
			if i >= 4 {
				want = codes.NotFound
			}
			wantCode(t, fmt.Sprint("call ", i), statusOf(err), want)
		}
		if sent["patch machinedeployments"] != 2 {
			t.Errorf("%v; want a write of the first call and one of the others", sent)
		}
		if d := f.deployment("pool"); d.Spec.Replicas != 2 {
			t.Errorf("%d replicas, want 2: %v", d.Spec.Replicas, d.Annotations)
		}
		if sent["get machines"] != 3 || sent["list machines"] != 2 {
			t.Errorf("%v; want 3 reads of Machines, and the namespace read at first, and once anew", sent)
		}
	})
}

// TestABatchIsBounded: calls that name more Nodes than one call may wait for the next batch.
func TestABatchIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, pool("pool", 5)...)
		many := make([]groups.Node, groups.MostNodes)
		for i := range many {
			many[i] = nodesNamed("pool-1")[0]
		}
		errs, sent := f.batch(t, f.server().service.writer, noFault, nodesNamed("pool-0"), many, many, nodesNamed("pool-2"))
		if err := errors.Join(errs...); err != nil {
			t.Error(err)
		}
		f.wantPool(2, "pool-0", "pool-1", "pool-2")
		if sent["get machinedeployments"] != 4+1 { // the last one is that of wantPool
			t.Errorf("%v; want the calls in four batches", sent)
		}
	})
}

func TestAMachineThatCannotBeReadFailsItsCallOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, pool("pool", 5)...)
		broken := func(r apiserver.Request) error {
			if r.What() == "get machines" && r.Name == "pool-1" {
				return errors.New("not now")
			}
			return nil
		}
		errs, _ := f.batch(t, f.server().service.writer, broken, nodesNamed("pool-0"), nodesNamed("pool-1", "pool-2"), nodesNamed("pool-3"))
		for i, want := range []codes.Code{codes.OK, codes.Unavailable, codes.OK} {
			wantCode(t, fmt.Sprint("call ", i), statusOf(errs[i]), want)
		}
		f.wantPool(3, "pool-0", "pool-3")
	})
}

// TestAPanicInABatchIsAnErrorOfAllItsCalls: none of them is answered as if it had its effect.
func TestAPanicInABatchIsAnErrorOfAllItsCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, pool("pool", 5)...)
		w := f.server().service.writer
		writes := 0
		w.forUser = func(ctx context.Context, _, _ string) context.Context {
			if writes++; writes == 2 {
				panic("a defect")
			}
			return ctx
		}
		errs, _ := f.batch(t, w, noFault, nodesNamed("pool-0"), nodesNamed("pool-1"), nodesNamed("pool-2"))
		if errs[0] != nil || errs[1] == nil || !strings.Contains(errs[1].Error(), "a defect") {
			t.Errorf("%v", errs)
		}
		wantCode(t, "a call of the batch", errs[2], codes.Internal)
		f.wantPool(4, "pool-0")
	})
}

// TestABatchEndsWithItsOldestCall: not one whole time-out after its turn.
func TestABatchEndsWithItsOldestCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, pool("pool", 5)...)
		const waited = 20 * time.Second
		one := &deletion{nodes: nodesNamed("pool-1"), began: f.clock.Now().Add(-waited)}
		w := f.server().service.writer
		var left time.Duration
		w.forUser = func(ctx context.Context, _, _ string) context.Context {
			end, _ := ctx.Deadline()
			left = time.Until(end)
			return ctx
		}
		w.deleteAll(t.Context(), groupKey{identity{"n", "autoscaler"}, "pool"}, []*deletion{one})
		if left != maxCall-waited || one.verdict != nil {
			t.Errorf("%s left, %v; want %s", left, one.verdict, maxCall-waited)
		}
	})
}

// TestDeletionsThatAreRefusedBeforeTheyWait send no request.
func TestDeletionsThatAreRefusedBeforeTheyWait(t *testing.T) {
	f := newFleet(t)
	w := f.server().service.writer
	who := identity{"n", "autoscaler"}
	wantCode(t, "too many Nodes", w.deleteNodes(t.Context(), who, "pool", make([]groups.Node, groups.MostNodes+1)), codes.InvalidArgument)
	wantCode(t, "no name", w.deleteNodes(t.Context(), who, "../pool", nil), codes.NotFound)
	if log := f.api.Log(); len(log) != 0 {
		t.Errorf("%v", log)
	}
}

// TestAMachineThatIsNewerThanTheSnapshotIsDeleted: it was created after this replica has read the
// namespace, and another one has shown it.
func TestAMachineThatIsNewerThanTheSnapshotIsDeleted(t *testing.T) {
	f := newFleet(t, pool("pool", 3)...)
	c := f.client("n")
	if _, err := c.Refresh(t.Context(), &externalgrpc.RefreshRequest{}); err != nil {
		t.Fatal(err)
	}
	f.clock.SetTime(f.clock.Now().Add(maxAge - time.Second))
	api := f.api.Machines().Machines("n")
	m, err := api.Get(t.Context(), "pool-0", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	m = m.DeepCopy()
	m.Name, m.UID, m.Spec.ProviderID, m.ResourceVersion, m.Labels = "young", "young", "", "", nil
	m.Status.CurrentStatus.Phase = v1alpha1.MachinePending
	if _, err := api.Create(t.Context(), m, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	_, err = c.NodeGroupDeleteNodes(t.Context(), &externalgrpc.NodeGroupDeleteNodesRequest{
		Id: "pool", Nodes: []*externalgrpc.ExternalGrpcNode{{Name: "requested://young", ProviderID: "requested://young"}},
	})
	d := f.deployment("pool")
	if named := d.Annotations[v1alpha1.AnnotationTriggerDeletion]; err != nil || d.Spec.Replicas != 2 || !strings.HasPrefix(named, "young~") {
		t.Errorf("%v; %d replicas and %v, want 2 and the name of the Machine", err, d.Spec.Replicas, d.Annotations)
	}
}
