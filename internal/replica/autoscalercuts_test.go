package replica

import (
	"context"
	"maps"
	"math"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/machine-controller-fleet/machine-controller-fleet/internal/autoscaler/externalgrpc"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/apiserver"
	"github.com/machine-controller-fleet/machine-controller-fleet/shard/namespaceswitch/policy"
)

// interruption describes what happens to a replica when the write of a call arrives at the API
// server.
type interruption struct {
	name string
	// after means that the write has had its effect, lost that its answer does not arrive.
	after, lost bool
	end         func(p *process)
}

// ofUser matches a request that is sent for an autoscaler.
var ofUser = regexp.MustCompile(`session=([^;]+); user=system:serviceaccount:`)

// TestCallsThatAreCut: a replica is killed, or hands over, in the middle of each call that changes
// something, and the call is sent again to another one, as upstream does it. The number of machines
// and which ones go are exact.
func TestCallsThatAreCut(t *testing.T) {
	t.Parallel()
	for _, how := range []interruption{
		{name: "killed before the effect", lost: true, end: (*process).crash},
		{name: "killed after the effect", after: true, lost: true, end: (*process).crash},
		{name: "the answer is lost", after: true, lost: true, end: func(*process) {}},
		{name: "hands over before the effect", end: (*process).quit},
	} {
		t.Run(how.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newAutoscaled(t)
				defer s.end()
				s.cutEach(how)
			})
		})
	}
}

// cutEach cuts a call of each of the three methods.
func (s *autoscaled) cutEach(how interruption) {
	const pool = "zone-a"
	s.pool("a", pool, 6, 0, 20)
	s.start("fleet-0")
	s.start("fleet-1")
	s.becomes("6 machines run", func() bool { return s.runningOf(pool) == 6 })
	c, ctx := s.connect("a"), s.Context()
	size := func() int32 { // in another loop
		if _, err := c.Refresh(ctx, &externalgrpc.RefreshRequest{}); err != nil {
			s.logf("Refresh fails: %v", err)
			return -1
		}
		answer, err := c.NodeGroupTargetSize(ctx, &externalgrpc.NodeGroupTargetSizeRequest{Id: pool})
		if err != nil {
			s.logf("the size is not known: %v", err)
			return -1
		}
		return answer.GetTargetSize()
	}
	// resize changes the size by what is missing, as upstream does it after each failure.
	resize := func(by func(context.Context, int32) error, to int32) func() error {
		return func() error {
			is := size()
			if is < 0 {
				return errBroken
			}
			if is == to {
				return nil
			}
			return by(ctx, to-is)
		}
	}
	increase := func(ctx context.Context, by int32) error {
		_, err := c.NodeGroupIncreaseSize(ctx, &externalgrpc.NodeGroupIncreaseSizeRequest{Id: pool, Delta: by})
		return err
	}
	s.repeat(how, resize(increase, 10))
	s.becomes("10 machines run", func() bool { return s.runningOf(pool) == 10 })
	s.lasts(time.Minute)
	want := s.machines("a", pool)
	if len(want) != 10 {
		s.Errorf("%d machines, want 10", len(want))
	}

	var nodes []*externalgrpc.ExternalGrpcNode
	for _, m := range s.machinesOf(pool)[3:5] {
		node := apiserver.Read[corev1.Node](s.target, "nodes", "", m.Name)
		nodes = append(nodes, &externalgrpc.ExternalGrpcNode{Name: node.Name, ProviderID: node.Spec.ProviderID, Annotations: node.Annotations})
		delete(want, m.Name)
	}
	remove := func() error {
		_, err := c.NodeGroupDeleteNodes(ctx, &externalgrpc.NodeGroupDeleteNodesRequest{Id: pool, Nodes: nodes})
		return err
	}
	s.repeat(how, remove)
	if err := remove(); err != nil {
		s.Errorf("the same call again: %v", err)
	}
	s.becomes("2 machines are gone", func() bool { return s.sizes()["a/"+pool] == 8 })
	s.lasts(time.Minute)
	s.only(pool, want)

	s.never = true
	s.repeat(interruption{}, resize(increase, 12))
	s.becomes("4 machines wait for their Nodes", func() bool { return s.sizes()["a/"+pool] == 12 })
	s.repeat(how, resize(func(ctx context.Context, by int32) error {
		_, err := c.NodeGroupDecreaseTargetSize(ctx, &externalgrpc.NodeGroupDecreaseTargetSizeRequest{Id: pool, Delta: by})
		return err
	}, 10))
	s.becomes("2 of them are gone", func() bool { return s.sizes()["a/"+pool] == 10 })
	s.lasts(time.Minute)
	left := s.machines("a", pool)
	maps.DeleteFunc(left, func(name string, _ types.UID) bool { return want[name] != "" })
	if n := len(s.machines("a", pool)); n != 10 || len(left) != 2 {
		s.Errorf("%d machines are left, of which %d have no Node; want 10 and 2", n, len(left))
	}
}

// repeat cuts the first write of a call, and repeats the call until it succeeds.
func (s *autoscaled) repeat(how interruption, call func() error) {
	s.Helper()
	var cuts atomic.Int32
	f := func(r apiserver.Request) error {
		session := ofUser.FindStringSubmatch(r.Header.Get("User-Agent"))
		if session == nil || cuts.Add(1) > 1 {
			return nil
		}
		for _, p := range s.alive() {
			if p.session == session[1] {
				how.end(p)
			}
		}
		if how.lost {
			return errBroken
		}
		return nil
	}
	if how.end != nil {
		if how.after {
			s.control.Lose(f)
		} else {
			s.control.Fault(f)
		}
		defer s.control.Lose(nil)
		defer s.control.Fault(nil)
	}
	s.becomes("the call succeeds", func() bool {
		err := call()
		if err != nil {
			s.logf("the call fails: %v", err)
			s.lasts(10 * time.Second)
		}
		return err == nil
	})
	if how.end != nil && cuts.Load() == 0 {
		s.Error("no write was cut")
	}
}

// TestNothingIsChangedWhileANamespaceIsSwitchedOff: its autoscaler runs all of its loops, and has
// nothing to change, although pods are pending, a Node is without pods, and machines are missing.
func TestNothingIsChangedWhileANamespaceIsSwitchedOff(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newAutoscaled(t, func(o *Options) { o.DeploymentSwitch = true })
		defer s.end()
		turn := func(replicas int32) {
			apiserver.Add(s.control, &appsv1.Deployment{
				ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: policy.Deployment}, Spec: appsv1.DeploymentSpec{Replicas: &replicas},
			})
		}
		turn(1)
		s.pool("a", "zone-a", 3, 0, 20)
		s.load(3, nil)
		s.begin("a")
		s.bound("3 pods have Nodes", map[string]int{"a/zone-a": 3})
		want := s.machines("a", "zone-a")
		turn(0)
		s.lasts(20 * time.Second)
		s.unload(slices.Sorted(maps.Keys(want))[0])
		s.load(5, map[string]string{labelZone: "zone-a"})
		s.control.Edit("machinedeployments", "a", "zone-a", func(u *unstructured.Unstructured) {
			_ = unstructured.SetNestedField(u.Object, int64(5), "spec", "replicas") // it is an object
		})
		s.lasts(15 * time.Minute)
		s.only("zone-a", want)
		c, ctx := s.connect("a"), t.Context()
		_, err := c.NodeGroupIncreaseSize(ctx, &externalgrpc.NodeGroupIncreaseSizeRequest{Id: "zone-a", Delta: 1})
		if status.Code(err) != codes.FailedPrecondition {
			t.Errorf("increase: %v", err)
		}
		if changes := s.changes(); len(changes) > 0 || len(s.errs) > 0 {
			t.Errorf("the autoscaler has sent %v, and its loops have ended with %v", changes, s.errs)
		}
		turn(1)
		s.bound("it grows when it is switched on", map[string]int{"a/zone-a": 7})
	})
}

// TestAHostileAutoscaler: one that sends 10,000 calls a second, about objects of others and with
// sizes that are none, has no effect on any object and few requests, and another autoscaler is
// served meanwhile.
func TestAHostileAutoscaler(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newAutoscaled(t)
		defer s.end()
		s.pool("a", "zone-a", 2, 0, 10)
		s.pool("b", "zone-b", 2, 0, 10)
		s.load(2, map[string]string{labelPool: "a.zone-a"})
		a := s.begin("a")
		s.becomes("4 machines run", func() bool { return s.runningOf("zone-a")+s.runningOf("zone-b") == 4 })
		before := s.machines("b", "zone-b")
		var requests, rejected, answered atomic.Int64
		s.watch = func(q request, r *http.Request) {
			if strings.Contains(q.path, "/namespaces/b/machine") && q.kind != watches {
				requests.Add(1)
			}
			if strings.Contains(r.Header.Get("User-Agent"), "user=system:serviceaccount:b:") {
				t.Errorf("%s %s for the hostile one", q.method, q.path)
			}
		}
		const senders, lasts = 50, 1500 * time.Millisecond
		foreign := s.Nodes()[0]
		c := s.connect("b")
		var running sync.WaitGroup
		for i := range senders {
			running.Go(func() {
				for n, end := i, time.Now().Add(lasts); time.Now().Before(end); n++ {
					time.Sleep(senders * time.Second / 10_000)
					if err := hostile(t.Context(), c, n, foreign.Name, foreign.Spec.ProviderID); status.Code(err) == codes.ResourceExhausted {
						rejected.Add(1)
					} else {
						answered.Add(1)
					}
				}
			})
		}
		s.load(3, map[string]string{labelPool: "a.zone-a"})
		a.next = time.Now().Add(500 * time.Millisecond)
		s.lasts(time.Second)
		if calls := a.Calls("IncreaseSize"); len(calls) != 1 || calls[0].Err != nil || len(s.errs) > 0 {
			t.Errorf("calls of the other one %v, loops %v", calls, s.errs)
		}
		running.Wait()
		// The burst that is allowed, and 1,000 a second.
		if n := answered.Load(); n > 12_000 || rejected.Load() < 1000 {
			t.Errorf("%d calls were answered and %d rejected", n, rejected.Load())
		}
		if n := requests.Load(); n > 500 {
			t.Errorf("%d requests about its namespace", n)
		}
		t.Logf("%d calls answered, %d rejected, %d requests", answered.Load(), rejected.Load(), requests.Load())
		s.watch = func(request, *http.Request) {}
		s.bound("the pods of the other one have Nodes", map[string]int{"a/zone-a": 5, "b/zone-b": 2})
		if got := s.machines("b", "zone-b"); !maps.Equal(got, before) {
			t.Errorf("machines of the hostile one: %v, want %v", got, before)
		}
	})
}

// hostile sends one of the calls that must not have an effect.
func hostile(ctx context.Context, c externalgrpc.CloudProviderClient, n int, node, providerID string) error {
	delta := []int32{math.MinInt32, -1, 0, math.MaxInt32}[n/10%4]
	foreign := []*externalgrpc.ExternalGrpcNode{{Name: node, ProviderID: providerID}}
	var err error
	switch n % 10 { //nolint:mnd // a number for each call
	case 0:
		_, err = c.NodeGroupIncreaseSize(ctx, &externalgrpc.NodeGroupIncreaseSizeRequest{Id: "zone-b", Delta: delta})
	case 1:
		_, err = c.NodeGroupDecreaseTargetSize(ctx, &externalgrpc.NodeGroupDecreaseTargetSizeRequest{Id: "zone-b", Delta: -delta})
	case 2:
		_, err = c.NodeGroupIncreaseSize(ctx, &externalgrpc.NodeGroupIncreaseSizeRequest{Id: "zone-a", Delta: 1})
	case 3:
		_, err = c.NodeGroupIncreaseSize(ctx, &externalgrpc.NodeGroupIncreaseSizeRequest{Id: "../../a/machinedeployments/zone-a", Delta: 1})
	case 4:
		_, err = c.NodeGroupDeleteNodes(ctx, &externalgrpc.NodeGroupDeleteNodesRequest{Id: "zone-b", Nodes: foreign})
	case 5:
		_, err = c.NodeGroupDeleteNodes(ctx, &externalgrpc.NodeGroupDeleteNodesRequest{Id: "zone-a", Nodes: foreign})
	case 6:
		_, err = c.Refresh(ctx, &externalgrpc.RefreshRequest{})
	case 7:
		_, err = c.NodeGroupForNode(ctx, &externalgrpc.NodeGroupForNodeRequest{Node: foreign[0]})
	default:
		_, err = c.NodeGroupNodes(ctx, &externalgrpc.NodeGroupNodesRequest{Id: "zone-b"})
	}
	return err
}
