package machine

import (
	"context"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/deletion/receipt"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/drainer/drain"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/apiserver"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/targettest"
)

// The list follows the cordon, and precedes the mark, which releases an empty Node: so the drain
// needs no further request.
func TestAnEmptyNodeCostsTwoWritesAndOneList(t *testing.T) {
	c, p, cluster := drainBench(t, targettest.PodOn("m", "proxy", "DaemonSet"))
	p.world.Node.Node.Finalizers = []string{v1alpha1.NodeFinalizerName}
	p.world.Node.Node = apiserver.Add(cluster, p.world.Node.Node)
	var sent []string
	for _, step := range []struct {
		do   func(context.Context, *pass) error
		want []string
	}{
		{c.drains.setTerminating, []string{"patch nodes"}},
		{c.drains.setTerminating, []string{"list pods", "patch nodes/status"}},
		{c.drains.forDeletion, nil},
		{func(ctx context.Context, p *pass) error { return c.nodes.delete(ctx, p, receipt.Reason{}) }, []string{"delete nodes"}},
	} {
		cluster.Forget()
		if err := step.do(t.Context(), p); err != nil {
			t.Fatal(err)
		}
		if got := cluster.Log(); !slices.Equal(got, step.want) {
			t.Errorf("requests %q, want %q", got, step.want)
		}
		for _, r := range cluster.Requests() {
			if version := r.URL.Query().Get("resourceVersion"); version != "" {
				t.Errorf("the list requests version %q, and not the newest", version)
			}
		}
		sent = append(sent, cluster.Sent("patch nodes", "patch nodes/status")...)
	}
	cordon := `{"metadata":{"resourceVersion":"3","uid":"node"},` +
		`"spec":{"taints":[{"key":"node.kubernetes.io/unschedulable","effect":"NoSchedule"}],"unschedulable":true}}`
	release := `{"metadata":{"$deleteFromPrimitiveList/finalizers":["node.machine.sapcloud.io/machine-controller"],"uid":"node"},"status":`
	if len(sent) != 2 || sent[0] != cordon || !strings.HasPrefix(sent[1], release) {
		t.Errorf("patches %q, want %s and %s…", sent, cordon, release)
	}
	if r := p.world.Drain; r.State != drain.Drained || r.Ending {
		t.Errorf("report %+v, want it drained, without a text", r)
	}
	if c.drains.State("u") != drain.Drained {
		t.Error("the next pass would look again")
	}
}

// What was listed when the Node was marked counts in that pass, and once.
func TestNextPassListsPodsAgain(t *testing.T) {
	c, p, cluster := drainBench(t, targettest.PodOn("m", "web", ""))
	for range 3 {
		if err := c.drains.setTerminating(t.Context(), p); err != nil {
			t.Fatal(err)
		}
	}
	if got, want := cluster.Log(), []string{
		"patch nodes", "list pods", "patch nodes/status", "list pods", "patch nodes/status",
	}; !slices.Equal(got, want) {
		t.Errorf("requests %q, want %q", got, want)
	}
	if err := c.drains.forDeletion(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	if p.listed != nil || p.world.Drain.State != drain.Draining {
		t.Errorf("%v is left, and the drain is %+v", p.listed, p.world.Drain)
	}
	if c.memory.of("u").released == "node" {
		t.Error("a Node with pods was released")
	}
	c, p, cluster = drainBench(t)
	p.listed = &sighting{node: "another", pods: nil}
	if err := c.drains.forDeletion(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	if got, want := cluster.Log(), []string{"patch nodes", "list pods"}; !slices.Equal(got, want) {
		t.Errorf("after another Node was listed: requests %q, want %q", got, want)
	}
}

// A Node whose finalizer still exists is released when it is deleted.
func TestNodeWithFinalizerIsReleased(t *testing.T) {
	for name, tc := range map[string]struct {
		before func(c *Controller, p *pass, cluster *apiserver.Server)
		want   []string
	}{
		"by a process that has ended": {
			func(c *Controller, _ *pass, _ *apiserver.Server) { c.memory.forget("u") }, []string{"patch nodes", "delete nodes"},
		},
		"by this one": {func(*Controller, *pass, *apiserver.Server) {}, []string{"delete nodes"}},
	} {
		t.Run(name, func(t *testing.T) {
			c, p, cluster := drainBench(t)
			for range 2 {
				if err := c.drains.setTerminating(t.Context(), p); err != nil {
					t.Fatal(err)
				}
			}
			tc.before(c, p, cluster)
			cluster.Forget()
			if err := c.nodes.delete(t.Context(), p, receipt.Reason{}); err != nil {
				t.Fatal(err)
			}
			if got := cluster.Log(); !slices.Equal(got, tc.want) {
				t.Errorf("requests %q, want %q", got, tc.want)
			}
		})
	}
}

// If pods cannot be listed, the drain reports it: the Node is marked all the same, and not
// released.
func TestNodeWhosePodsCannotBeListedIsTerminating(t *testing.T) {
	c, p, cluster := drainBench(t)
	cluster.Refuse("list pods", forbidden("pods"))
	for range 2 {
		if err := c.drains.setTerminating(t.Context(), p); err != nil {
			t.Fatal(err)
		}
	}
	if got, want := cluster.Log(), []string{"patch nodes", "list pods", "patch nodes/status"}; !slices.Equal(got, want) {
		t.Errorf("requests %q, want %q", got, want)
	}
	if c.memory.of("u").released == "node" || p.listed != nil {
		t.Error("it was released before its pods were listed")
	}
	if err := c.drains.forDeletion(t.Context(), p); !apierrors.IsForbidden(err) {
		t.Errorf("the drain returned %v", err)
	}
}
