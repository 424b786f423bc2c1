package autoscaler

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/machine-controller-fleet/machine-controller-fleet/internal/autoscaler/externalgrpc"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/apiserver"
)

const groupsOfLoop, nodesOfGroup = 50, 20

func manyPools() (objects []apiserver.Typed) {
	for i := range groupsOfLoop {
		objects = append(objects, pool(fmt.Sprint("pool-", i), nodesOfGroup)...)
	}
	return objects
}

// loop sends the calls of a client that has nothing to change, for manyPools.
func loop(tb testing.TB, c externalgrpc.CloudProviderClient, took func(method string, of time.Duration)) {
	tb.Helper()
	var ids, machines []string
	for i := range groupsOfLoop {
		ids = append(ids, fmt.Sprint("pool-", i))
		for j := range nodesOfGroup {
			machines = append(machines, fmt.Sprintf("pool-%d-%d", i, j))
		}
	}
	loopOver(tb, c, ids, machines, took)
}

// loopOver sends the calls of such a client for each group, and for the Node of each machine.
func loopOver(tb testing.TB, c externalgrpc.CloudProviderClient, ids, machines []string, took func(method string, of time.Duration)) {
	tb.Helper()
	ctx := tb.Context()
	timed := func(method string, call func() error) {
		tb.Helper()
		began := time.Now()
		if err := call(); err != nil {
			tb.Fatal(method, err)
		}
		took(method, time.Since(began))
	}
	timed("Refresh", func() error {
		_, err := c.Refresh(ctx, &externalgrpc.RefreshRequest{})
		return err
	})
	timed("NodeGroups", func() error {
		_, err := c.NodeGroups(ctx, &externalgrpc.NodeGroupsRequest{})
		return err
	})
	for _, machine := range machines {
		timed("NodeGroupForNode", func() error {
			_, err := c.NodeGroupForNode(ctx, &externalgrpc.NodeGroupForNodeRequest{Node: nodes(machine)[0]})
			return err
		})
	}
	for _, id := range ids {
		timed("NodeGroupTargetSize", func() error {
			_, err := c.NodeGroupTargetSize(ctx, &externalgrpc.NodeGroupTargetSizeRequest{Id: id})
			return err
		})
		timed("NodeGroupNodes", func() error {
			_, err := c.NodeGroupNodes(ctx, &externalgrpc.NodeGroupNodesRequest{Id: id})
			return err
		})
		timed("NodeGroupTemplateNodeInfo", func() error {
			_, err := c.NodeGroupTemplateNodeInfo(ctx, &externalgrpc.NodeGroupTemplateNodeInfoRequest{Id: id})
			return err
		})
	}
}

// changeSizes sends the calls that change sizes, of another group and Node each time, and those
// that a client sends before it deletes Nodes, or once.
func (f *fleet) changeSizes(c externalgrpc.CloudProviderClient, n int, took func(method string, of time.Duration)) {
	f.Helper()
	ctx, id := f.Context(), fmt.Sprint("pool-", n%groupsOfLoop)
	for _, call := range []struct {
		method string
		send   func() error
	}{
		{"NodeGroupGetOptions", func() error {
			_, err := c.NodeGroupGetOptions(ctx, &externalgrpc.NodeGroupAutoscalingOptionsRequest{Id: id})
			if status.Code(err) == codes.Unimplemented { // it sets none
				return nil
			}
			return err
		}},
		{"GetAvailableGPUTypes", func() error {
			_, err := c.GetAvailableGPUTypes(ctx, &externalgrpc.GetAvailableGPUTypesRequest{})
			return err
		}},
		{"NodeGroupIncreaseSize", func() error {
			_, err := c.NodeGroupIncreaseSize(ctx, &externalgrpc.NodeGroupIncreaseSizeRequest{Id: id, Delta: 2})
			return err
		}},
		{"NodeGroupDecreaseTargetSize", func() error {
			_, err := c.NodeGroupDecreaseTargetSize(ctx, &externalgrpc.NodeGroupDecreaseTargetSizeRequest{Id: id, Delta: -2})
			return err
		}},
		{"NodeGroupDeleteNodes", func() error {
			machine := fmt.Sprintf("%s-%d", id, n/groupsOfLoop%nodesOfGroup)
			_, err := c.NodeGroupDeleteNodes(ctx, &externalgrpc.NodeGroupDeleteNodesRequest{Id: id, Nodes: nodes(machine)})
			return err
		}},
	} {
		f.clock.SetTime(f.clock.Now().Add(time.Millisecond)) // what was read is older than the call
		began := time.Now()
		if err := call.send(); err != nil {
			f.Fatal(call.method, err)
		}
		took(call.method, time.Since(began))
	}
}

// TestALoopIsFewRequests: regardless of its calls, a loop is one list of each kind, in pages.
func TestALoopIsFewRequests(t *testing.T) {
	f := newFleet(t, manyPools()...)
	calls := 0
	loop(t, f.client("n"), func(string, time.Duration) { calls++ })
	if all := f.api.Log(); len(all) > 5 || f.api.Writes() != 0 {
		t.Errorf("%d calls were %d requests: %v", calls, len(all), all)
	}
}

// BenchmarkLoop measures a loop over 50 groups with 1,000 Nodes: its time without changes, its
// requests, and the 99th percentile of each method, also of those that change sizes.
func BenchmarkLoop(b *testing.B) {
	f := newFleet(b, manyPools()...)
	c := f.client("n")
	took, n, requests := map[string][]time.Duration{}, 0, 0
	count := func(method string, of time.Duration) { took[method] = append(took[method], of) }
	f.api.Forget()
	for b.Loop() {
		f.clock.SetTime(f.clock.Now().Add(10 * time.Second))
		loop(b, c, count)
		b.StopTimer()
		requests += f.api.Count("*")
		f.changeSizes(c, n, count)
		n++
		f.api.Forget()
		b.StartTimer()
	}
	for method, all := range took {
		slices.Sort(all)
		b.ReportMetric(float64(all[len(all)*99/100].Microseconds()), "p99-µs-"+method)
	}
	b.ReportMetric(float64(requests)/float64(n), "requests/op")
}
