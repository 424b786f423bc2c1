package autoscaler

import (
	"fmt"
	"slices"
	"testing"
	"time"

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

// TestALoopIsFewRequests: regardless of its calls, a loop is one list of each kind, in pages.
func TestALoopIsFewRequests(t *testing.T) {
	f := newFleet(t, manyPools()...)
	calls := 0
	loop(t, f.client("n"), func(string, time.Duration) { calls++ })
	if all := f.api.Log(); len(all) > 5 || f.api.Writes() != 0 {
		t.Errorf("%d calls were %d requests: %v", calls, len(all), all)
	}
}

// BenchmarkLoop measures a loop over 50 groups with 1,000 Nodes: its time, and the 99th percentile
// of each method.
func BenchmarkLoop(b *testing.B) {
	f := newFleet(b, manyPools()...)
	c := f.client("n")
	took := map[string][]time.Duration{}
	for b.Loop() {
		f.clock.SetTime(f.clock.Now().Add(10 * time.Second))
		loop(b, c, func(method string, of time.Duration) { took[method] = append(took[method], of) })
	}
	for method, all := range took {
		slices.Sort(all)
		b.ReportMetric(float64(all[len(all)*99/100].Microseconds()), "p99-µs-"+method)
	}
	b.ReportMetric(float64(f.api.Count("*"))/float64(b.N), "requests/op")
}
