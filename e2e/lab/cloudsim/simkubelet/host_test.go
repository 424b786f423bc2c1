package simkubelet

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/lab/cloudsim/guest"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/simulated/cloudapi"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// cluster is a running Host in a synctest bubble, with a fake API server.
type cluster struct {
	t      *testing.T
	client *fake.Clientset
	host   *Host
	cloud  *cloud
	proofs []string         // tokens
	refuse error            // what a proof returns
	faults map[string]error // what the next request of that kind returns, by "verb resource"
	mu     sync.Mutex
}

// cloud records the reports of a Host.
type cloud struct {
	mu          sync.Mutex
	joined      []string
	console     []string
	termination time.Duration
	updates     cloudapi.InPlaceUpdates
	reboot      time.Duration
}

func (c *cloud) Joined(id, line string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.joined = append(c.joined, id)
	c.console = append(c.console, line)
}

func (c *cloud) Console(_, line string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.console = append(c.console, line)
}

func (c *cloud) Died(string, string) {}

func (c *cloud) IsOff(string) {}

func (c *cloud) Settings() cloudapi.Settings {
	c.mu.Lock()
	defer c.mu.Unlock()
	return cloudapi.Settings{
		PodTerminationTime: cloudapi.Duration(c.termination), InPlaceUpdates: c.updates, RebootTime: cloudapi.Duration(c.reboot),
	}
}

func inCluster(t *testing.T, test func(c *cluster), objects ...runtime.Object) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		for i, object := range objects {
			objects[i] = object.DeepCopyObject()
		}
		c := &cluster{t: t, client: fake.NewClientset(objects...), cloud: &cloud{termination: time.Second}, faults: map[string]error{}}
		c.client.PrependReactor("*", "*", c.react)
		var err error
		c.host, err = New(Config{Client: c.client, Prove: c.prove, Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- c.host.Run(ctx, c.cloud) }()
		c.pass(time.Second) // The informers poll until they are synced.
		test(c)
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
}

// react adds what the API server does and the fake does not: it sets the UID of a Node, and fails
// on request.
func (c *cluster) react(action clienttesting.Action) (handled bool, _ runtime.Object, _ error) {
	if create, ok := action.(clienttesting.CreateAction); ok {
		if node, ok := create.GetObject().(*corev1.Node); ok {
			node.UID = "uid-of-node"
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	kind := action.GetVerb() + " " + action.GetResource().Resource
	err := c.faults[kind]
	delete(c.faults, kind)
	return err != nil, nil, err
}

// failNext makes the next request of a kind fail.
func (c *cluster) failNext(kind string, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.faults[kind] = err
}

func (c *cluster) prove(_ context.Context, token string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.proofs = append(c.proofs, token)
	return c.refuse
}

func (c *cluster) setRefusal(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.refuse = err
}

// pass lets time pass.
func (c *cluster) pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// writes counts what was written, as "verb resource[/subresource]".
func (c *cluster) writes() map[string]int {
	counts := map[string]int{}
	for _, a := range c.client.Actions() {
		if slices.Contains([]string{"list", "watch"}, a.GetVerb()) || a.GetResource().Resource == "version" {
			continue
		}
		name := a.GetVerb() + " " + a.GetResource().Resource
		if a.GetSubresource() != "" {
			name += "/" + a.GetSubresource()
		}
		counts[name]++
	}
	c.client.ClearActions()
	return counts
}

func (c *cluster) node(name string) *corev1.Node {
	c.t.Helper()
	node, err := c.client.CoreV1().Nodes().Get(c.t.Context(), name, metav1.GetOptions{})
	if err != nil {
		c.t.Fatal(err)
	}
	return node
}

func (c *cluster) said(text string) bool {
	c.cloud.mu.Lock()
	defer c.cloud.mu.Unlock()
	return slices.ContainsFunc(c.cloud.console, func(line string) bool { return strings.Contains(line, text) })
}

func aVM() guest.VM {
	return guest.VM{
		ID: "i-1", Name: "a", ProviderID: "simulated:///r/z/i-1", Region: "r", Zone: "z", InstanceType: "standard-4", Image: "linux-1",
		IP: "10.64.0.2", CPU: 4, MemoryMiB: 16 << 10, BootstrapToken: "abcdef.0123456789abcdef",
	}
}

// A join is a proof and two writes, and a Node costs a write every 25 s afterwards.
func TestJoin(t *testing.T) {
	inCluster(t, func(c *cluster) {
		c.host.PowerOn(aVM())
		c.host.PowerOn(aVM())
		synctest.Wait()
		if diff := cmp.Diff(map[string]int{"create nodes": 1, "create leases": 1}, c.writes()); diff != "" || len(c.proofs) != 1 {
			t.Errorf("%d proofs, want 1; writes of a join (-want +got):\n%s", len(c.proofs), diff)
		}
		node := c.node("a")
		if node.Spec.ProviderID != "simulated:///r/z/i-1" || ready(node) != corev1.ConditionTrue || node.Labels[corev1.LabelTopologyZone] != "z" {
			t.Errorf("Node %+v", node)
		}
		if cpu := node.Status.Allocatable.Cpu().Value(); cpu != 4 {
			t.Errorf("allocatable CPU %d, want 4", cpu)
		}
		lease, err := c.client.CoordinationV1().Leases("kube-node-lease").Get(c.t.Context(), "a", metav1.GetOptions{})
		if err != nil || lease.OwnerReferences[0].UID != node.UID || *lease.Spec.HolderIdentity != "a" {
			t.Errorf("Lease %+v, %v", lease, err)
		}
		if len(c.cloud.joined) != 1 {
			t.Errorf("reported as joined %d times, want 1", len(c.cloud.joined))
		}
		c.writes()
		c.pass(10 * leaseInterval)
		counts := c.writes()
		if renewals := counts["update leases"]; renewals < 9 || renewals > 11 || len(counts) > 2 {
			t.Errorf("in 250 s: %v, want about 10 renewals and at most a status report", counts)
		}
		c.host.PowerOff("i-1", 0)
		c.pass(time.Minute)
		if counts := c.writes(); len(counts) > 0 {
			t.Errorf("after the end of the VM: %v, want nothing", counts)
		}
		c.node("a") // It is not deleted.
	})
}

func TestJoinIsRetried(t *testing.T) {
	inCluster(t, func(c *cluster) {
		c.setRefusal(errors.New("401"))
		c.host.PowerOn(aVM())
		c.pass(8 * time.Second) // Attempts after 0, 1, 3 and 7 s.
		if len(c.proofs) != 4 || !c.said("the bootstrap token is not valid: 401") {
			t.Errorf("%d proofs, want 4; console: %q", len(c.proofs), c.cloud.console)
		}
		if counts := c.writes(); len(counts) > 0 {
			t.Errorf("writes without a proof: %v", counts)
		}
		c.setRefusal(nil)
		c.pass(10 * time.Second)
		if len(c.cloud.joined) != 1 {
			t.Error("it has not joined after the token worked")
		}
	})
}

func TestJoinStopsAfterItsTime(t *testing.T) {
	inCluster(t, func(c *cluster) {
		c.setRefusal(errors.New("401"))
		c.host.PowerOn(aVM())
		c.pass(retryFor + 2*lastRetry)
		attempts := len(c.proofs)
		c.pass(time.Hour)
		if len(c.proofs) != attempts || !c.said("stopped trying") {
			t.Errorf("it still retries; console: %q", c.cloud.console)
		}
	})
}

func TestNoToken(t *testing.T) {
	inCluster(t, func(c *cluster) {
		vm := aVM()
		vm.BootstrapToken = ""
		c.host.PowerOn(vm)
		c.pass(time.Minute)
		if len(c.proofs) > 0 || !c.said("no bootstrap token") {
			t.Errorf("%d proofs, want none; console: %q", len(c.proofs), c.cloud.console)
		}
	})
}

// When the API server fails between the two writes of a join, the proof is not repeated: the token
// may be deleted by then.
func TestJoinContinuesAfterFailedLease(t *testing.T) {
	inCluster(t, func(c *cluster) {
		c.failNext("create leases", apierrors.NewInternalError(errors.New("busy")))
		c.host.PowerOn(aVM())
		c.pass(2 * time.Second)
		if len(c.proofs) != 1 || len(c.cloud.joined) != 1 {
			t.Errorf("%d proofs and %d joins, want 1 and 1", len(c.proofs), len(c.cloud.joined))
		}
	})
}

// A kubelet takes over a Node of its name, and does not change the provider ID of another VM.
func TestNodeOfAnotherVM(t *testing.T) {
	other := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "a", UID: "other", Labels: map[string]string{"mine": "kept", corev1.LabelTopologyZone: "old"}},
		Spec:       corev1.NodeSpec{ProviderID: "simulated:///r/z/i-0"},
	}
	inCluster(t, func(c *cluster) {
		c.host.PowerOn(aVM())
		synctest.Wait()
		node := c.node("a")
		if node.Spec.ProviderID != other.Spec.ProviderID || node.UID != "other" || ready(node) != corev1.ConditionTrue {
			t.Errorf("provider ID %q, UID %q, ready %s", node.Spec.ProviderID, node.UID, ready(node))
		}
		if node.Labels["mine"] != "kept" || node.Labels[corev1.LabelTopologyZone] != "z" {
			t.Errorf("labels %v", node.Labels)
		}
		if !c.said("exists already with provider ID") {
			t.Errorf("console: %q", c.cloud.console)
		}
	}, other)
}

func TestDeletedNodeIsNotRegisteredAgain(t *testing.T) {
	inCluster(t, func(c *cluster) {
		c.host.PowerOn(aVM())
		synctest.Wait()
		if err := c.client.CoreV1().Nodes().Delete(c.t.Context(), "a", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		c.writes()
		c.pass(10 * time.Minute)
		if counts := c.writes(); len(counts) > 0 || !c.said("the Node was deleted") {
			t.Errorf("after the Node was deleted: %v, want nothing; console: %q", counts, c.cloud.console)
		}
	})
}

// resumed is a VM whose Node was created in an earlier run of the cloud.
func resumed(joined bool) guest.VM {
	vm := aVM()
	vm.Joined, vm.Resumed = joined, true
	return vm
}

func TestResume(t *testing.T) {
	its := newNode(aVM(), guest.Healthy, "v1", time.Time{})
	its.UID = "its"
	for name, c := range map[string]struct {
		vm     guest.VM
		nodes  []runtime.Object
		proofs int
		joins  int
		alive  bool
	}{
		"joined":                         {vm: resumed(true), nodes: []runtime.Object{its}, alive: true},
		"joined, and its Node is gone":   {vm: resumed(true)},
		"killed before it was noted":     {vm: resumed(false), nodes: []runtime.Object{its}, joins: 1, alive: true},
		"killed before the Node existed": {vm: resumed(false), proofs: 1, joins: 1, alive: true},
	} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, func(cl *cluster) {
				cl.host.PowerOn(c.vm)
				cl.pass(time.Minute)
				if len(cl.proofs) != c.proofs || len(cl.cloud.joined) != c.joins {
					t.Errorf("%d proofs and %d joins, want %d and %d", len(cl.proofs), len(cl.cloud.joined), c.proofs, c.joins)
				}
				_, err := cl.client.CoordinationV1().Leases("kube-node-lease").Get(cl.t.Context(), "a", metav1.GetOptions{})
				if alive := err == nil; alive != c.alive {
					t.Errorf("it has a Lease: %t, want %t", alive, c.alive)
				}
			}, c.nodes...)
		})
	}
}

func TestHealth(t *testing.T) {
	inCluster(t, func(c *cluster) {
		c.host.PowerOn(aVM())
		synctest.Wait()
		c.host.SetHealth("i-1", guest.NotReady)
		synctest.Wait()
		if got := ready(c.node("a")); got != corev1.ConditionFalse {
			t.Errorf("not ready: the Node says %s", got)
		}
		c.host.SetHealth("i-1", guest.Frozen)
		c.pass(time.Minute)
		c.writes()
		c.pass(time.Minute)
		if counts := c.writes(); len(counts) > 0 {
			t.Errorf("frozen: %v, want nothing", counts)
		}
		c.host.SetHealth("i-1", guest.Healthy)
		synctest.Wait()
		if got := ready(c.node("a")); got != corev1.ConditionTrue {
			t.Errorf("recovered: the Node says %s", got)
		}
	})
}

// Readiness that another client removed, like the node lifecycle controller, is restored with the
// next report.
func TestReadinessIsRestored(t *testing.T) {
	inCluster(t, func(c *cluster) {
		c.host.PowerOn(aVM())
		synctest.Wait()
		patch := []byte(`{"status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}}`)
		if _, err := c.client.CoreV1().Nodes().Patch(c.t.Context(), "a", types.StrategicMergePatchType, patch,
			metav1.PatchOptions{}, "status"); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if got := ready(c.node("a")); got != corev1.ConditionTrue {
			t.Errorf("the Node says %s", got)
		}
	})
}

// A Lease that another client wrote, or deleted, is written again.
func TestLeaseIsKept(t *testing.T) {
	inCluster(t, func(c *cluster) {
		c.host.PowerOn(aVM())
		synctest.Wait()
		c.writes()
		c.failNext("update leases", apierrors.NewConflict(corev1.Resource("leases"), "a", errors.New("changed")))
		c.pass(leaseInterval)
		if n := c.writes()["update leases"]; n != 2 {
			t.Errorf("%d updates, want one that conflicts and one that does not", n)
		}
		leases := c.client.CoordinationV1().Leases("kube-node-lease")
		if err := leases.Delete(c.t.Context(), "a", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		c.pass(leaseInterval)
		if _, err := leases.Get(c.t.Context(), "a", metav1.GetOptions{}); err != nil {
			t.Error(err)
		}
	})
}

func TestManyNodesRenewEvenly(t *testing.T) {
	inCluster(t, func(c *cluster) {
		const nodes = 100
		for i := range nodes {
			vm := aVM()
			vm.ID, vm.Name = fmt.Sprintf("i-%012x", i), fmt.Sprintf("vm-%d", i)
			c.host.PowerOn(vm)
		}
		c.pass(2 * leaseInterval)
		c.writes()
		for second := range 25 {
			c.pass(time.Second)
			if renewals := c.writes()["update leases"]; renewals > 15 { // An even spread is 4.
				t.Errorf("second %d: %d renewals of %d Nodes", second, renewals, nodes)
			}
		}
	})
}
