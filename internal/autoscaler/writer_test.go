package autoscaler

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/autoscaler/externalgrpc"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/apiserver"
)

func increase(ctx context.Context, c externalgrpc.CloudProviderClient, by int32) error {
	_, err := c.NodeGroupIncreaseSize(ctx, &externalgrpc.NodeGroupIncreaseSizeRequest{Id: "pool", Delta: by})
	return err
}

func decrease(ctx context.Context, c externalgrpc.CloudProviderClient, by int32) error {
	_, err := c.NodeGroupDecreaseTargetSize(ctx, &externalgrpc.NodeGroupDecreaseTargetSizeRequest{Id: "pool", Delta: by})
	return err
}

func remove(ctx context.Context, c externalgrpc.CloudProviderClient, names ...string) error {
	_, err := c.NodeGroupDeleteNodes(ctx, &externalgrpc.NodeGroupDeleteNodesRequest{Id: "pool", Nodes: nodes(names...)})
	return err
}

func (f *fleet) wantPool(replicas int32, named ...string) {
	f.Helper()
	d := f.deployment("pool")
	var list []string
	for _, name := range named {
		list = append(list, name+"~2026-01-02T03:04:05Z")
	}
	if got := d.Annotations[v1alpha1.AnnotationTriggerDeletion]; d.Spec.Replicas != replicas || got != strings.Join(list, ",") {
		f.Errorf("%d replicas and %q, want %d and %v", d.Spec.Replicas, got, replicas, named)
	}
}

// TestSizesAreChangedByOnePatch: under the version that was read, with what changes and nothing
// else.
func TestSizesAreChangedByOnePatch(t *testing.T) {
	f := newFleet(t, pool("pool", 3)...)
	c := f.client("n")
	version := f.deployment("pool").ResourceVersion
	f.api.Forget()
	if err := increase(t.Context(), c, 2); err != nil {
		t.Fatal(err)
	}
	f.wantPool(5)
	want := fmt.Sprintf(`{"metadata":{"resourceVersion":%q,"uid":"n-pool"},"spec":{"replicas":5}}`, version)
	if sent := f.api.Sent("patch *"); len(sent) != 1 || sent[0] != want || f.api.Writes() != 1 {
		t.Errorf("sent %v, want %s", sent, want)
	}
	if err := remove(t.Context(), c, "pool-1", "pool-2"); err != nil {
		t.Fatal(err)
	}
	f.wantPool(3, "pool-1", "pool-2")
	// Of the 3 that are left one runs, and two are not created yet.
	wantCode(t, "a decrease by a machine with a Node", decrease(t.Context(), c, -3), codes.FailedPrecondition)
	if err := decrease(t.Context(), c, -2); err != nil {
		t.Fatal(err)
	}
	f.wantPool(1, "pool-1", "pool-2")
	if f.api.Writes() != 3 {
		t.Errorf("%d writes, want 3: %v", f.api.Writes(), f.api.Log())
	}
}

// TestACallThatIsRepeatedChangesNothing: at another replica, whose snapshot is older, and after an
// answer that was lost.
func TestACallThatIsRepeatedChangesNothing(t *testing.T) {
	f := newFleet(t, pool("pool", 5)...)
	one, two := f.client("n"), f.client("n")
	for _, c := range []externalgrpc.CloudProviderClient{one, two} {
		if _, err := c.Refresh(t.Context(), &externalgrpc.RefreshRequest{}); err != nil {
			t.Fatal(err)
		}
	}
	var lost atomic.Bool
	f.api.Lose(func(r apiserver.Request) error {
		if r.Verb == "patch" && !lost.Swap(true) {
			return errors.New("the answer is lost")
		}
		return nil
	})
	if err := remove(t.Context(), one, "pool-1", "pool-2"); err == nil {
		t.Fatal("a call whose effect is not known succeeds")
	}
	f.wantPool(3, "pool-1", "pool-2")
	for _, c := range []externalgrpc.CloudProviderClient{one, two} {
		if err := remove(t.Context(), c, "pool-1", "pool-2"); err != nil {
			t.Error(err)
		}
	}
	f.wantPool(3, "pool-1", "pool-2")
	// The fleet marks one, and removes its name when it is being deleted.
	f.api.Edit("machines", "n", "pool-1", func(u *unstructured.Unstructured) {
		u.SetAnnotations(map[string]string{v1alpha1.AnnotationPriority: "1", v1alpha1.AnnotationMarkedForDeletionTime: "2026-01-02T03:04:05Z"})
	})
	f.api.Edit("machinedeployments", "n", "pool", func(u *unstructured.Unstructured) {
		all := u.GetAnnotations()
		delete(all, v1alpha1.AnnotationTriggerDeletion)
		u.SetAnnotations(all)
	})
	if err := f.api.Machines().Machines("n").Delete(t.Context(), "pool-2", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, c := range []externalgrpc.CloudProviderClient{two, one} {
		if err := remove(t.Context(), c, "pool-1", "pool-2"); err != nil {
			t.Error(err)
		}
	}
	f.wantPool(3)
}

// TestCallsAtTheSameTimeCountOnce: of several replicas, for overlapping Nodes, while the fleet
// writes the MachineDeployment, too.
func TestCallsAtTheSameTimeCountOnce(t *testing.T) {
	const machines, replicas = 12, 3
	f := newFleet(t, pool("pool", machines)...)
	var running sync.WaitGroup
	for i := range replicas {
		c := f.client("n")
		running.Go(func() {
			for j := range 4 {
				names := []string{fmt.Sprint("pool-", (i+2*j)%8), fmt.Sprint("pool-", (i+2*j+1)%8)}
				for wait := true; wait; {
					err := remove(t.Context(), c, names...)
					wait = err != nil
					if err != nil {
						wantCode(t, fmt.Sprint(names), err, codes.Aborted)
					}
				}
			}
		})
	}
	running.Wait()
	d := f.deployment("pool")
	named := strings.Split(d.Annotations[v1alpha1.AnnotationTriggerDeletion], ",")
	distinct := map[string]bool{}
	for _, name := range named {
		distinct[name] = true
	}
	if len(distinct) != 8 || len(named) != 8 || d.Spec.Replicas != machines-8 {
		t.Errorf("%d replicas, %d names, %d distinct: %v", d.Spec.Replicas, len(named), len(distinct), named)
	}
}

func TestAConflictIsDecidedAnew(t *testing.T) {
	f := newFleet(t, pool("pool", 3)...)
	c := f.client("n")
	conflict := apierrors.NewConflict(v1alpha1.Resource("machinedeployments"), "pool", errors.New("it was written"))
	var conflicts atomic.Int64
	f.api.Fault(func(r apiserver.Request) error {
		if r.Verb == "patch" && conflicts.Add(1) < attempts {
			return conflict
		}
		return nil
	})
	if err := increase(t.Context(), c, 1); err != nil {
		t.Fatal(err)
	}
	f.wantPool(4)
	f.api.Refuse("patch *", conflict)
	wantCode(t, "conflicts without end", increase(t.Context(), c, 1), codes.Aborted)
}

func TestHostileCalls(t *testing.T) {
	f := newFleet(t, append(append(pool("pool", 3), pool("other", 1)...), poolIn("m", "foreign", 1)...)...)
	c := f.client("n")
	for _, tc := range []struct {
		name string
		err  error
		want codes.Code
	}{
		{"by a huge number", increase(t.Context(), c, 1<<31-1), codes.FailedPrecondition},
		{"by a negative number", increase(t.Context(), c, -1), codes.InvalidArgument},
		{"a decrease by a positive number", decrease(t.Context(), c, 1), codes.InvalidArgument},
		{"a decrease by the most negative number", decrease(t.Context(), c, -1<<31), codes.FailedPrecondition},
		{"a Node of another group", remove(t.Context(), c, "pool-1", "other-0"), codes.InvalidArgument},
		{"a Node of another namespace", remove(t.Context(), c, "pool-1", "foreign-0"), codes.NotFound},
		{"an unknown Node", remove(t.Context(), c, "x"), codes.NotFound},
	} {
		wantCode(t, tc.name, tc.err, tc.want)
	}
	for _, id := range []string{
		"", "foreign", "m/foreign", "../../m/machinedeployments/foreign", "pool/status", "pool?x", strings.Repeat("x", 1<<19),
	} {
		_, err := c.NodeGroupIncreaseSize(t.Context(), &externalgrpc.NodeGroupIncreaseSizeRequest{Id: id, Delta: 1})
		wantCode(t, "a group "+id[:min(len(id), 40)], err, codes.NotFound)
	}
	f.held.Store("an audit")
	wantCode(t, "held", remove(t.Context(), c, "pool-1"), codes.FailedPrecondition)
	if writes := f.api.Writes(); writes != 0 {
		t.Errorf("%d writes: %v", writes, f.api.Log())
	}
}

// TestANamespaceThatIsOff: no change is accepted, and the limits leave an autoscaler none to
// request again and again. All else is answered: a failed answer would end its loop.
func TestANamespaceThatIsOff(t *testing.T) {
	f := newFleet(t, pool("pool", 3, func(d *v1alpha1.MachineDeployment) { d.Spec.Replicas = 5 })...)
	f.off.Store("it is switched off")
	c := f.client("n")
	for what, err := range map[string]error{
		"increase": increase(t.Context(), c, 1), "decrease": decrease(t.Context(), c, -1), "delete": remove(t.Context(), c, "pool-1"),
	} {
		wantCode(t, what, err, codes.FailedPrecondition)
	}
	loopOver(t, c, []string{"pool"}, []string{"pool-0"}, func(string, time.Duration) {})
	all, err := c.NodeGroups(t.Context(), &externalgrpc.NodeGroupsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	size, err := c.NodeGroupTargetSize(t.Context(), &externalgrpc.NodeGroupTargetSizeRequest{Id: "pool"})
	if g := all.GetNodeGroups()[0]; err != nil || size.GetTargetSize() != 3 || g.GetMinSize() != 3 || g.GetMaxSize() != 3 {
		t.Errorf("size %v, %v, and limits %v; want 3, as there are instances", size, err, g)
	}
	if writes := f.api.Writes(); writes != 0 {
		t.Errorf("%d writes: %v", writes, f.api.Log())
	}
	f.off.Store("")
	if err := increase(t.Context(), c, 1); err != nil {
		t.Error(err)
	}
}

// TestAGroupThatIsReplacedIsFound: its name is that of another MachineDeployment than in the
// snapshot.
func TestAGroupThatIsReplacedIsFound(t *testing.T) {
	f := newFleet(t, pool("pool", 2)...)
	c := f.client("n")
	if _, err := c.Refresh(t.Context(), &externalgrpc.RefreshRequest{}); err != nil {
		t.Fatal(err)
	}
	api := f.api.Machines().MachineDeployments("n")
	if err := api.Delete(t.Context(), "pool", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	d, _ := pool("pool", 2)[0].(*v1alpha1.MachineDeployment)
	d.UID = ""
	if _, err := api.Create(t.Context(), d, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	wantCode(t, "machines of the earlier one", remove(t.Context(), c, "pool-1"), codes.Aborted)
	f.clock.SetTime(f.clock.Now().Add(2 * refreshAge))
	wantCode(t, "machines of the earlier one, later", remove(t.Context(), c, "pool-1"), codes.InvalidArgument)
	f.wantPool(2)
}
