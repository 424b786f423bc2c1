package slotlabel

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"

	"k8s.io/apimachinery/pkg/types"

	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/apiserver"
	"github.com/machine-controller-fleet/machine-controller-fleet/shard/slotlabel/policy"
)

// Without a target cluster there are no Nodes; all else is unchanged.
func TestNoTargetCluster(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, err := NewWatch(apiserver.Recording(meta(policy.Machine, "1", "", "")).Metadata(), nil, "", 4)
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		if err := w.Start(ctx, func() {}); err != nil {
			t.Fatal(err)
		}
		if w.Has(policy.Node, types.NamespacedName{Name: "node-1"}) || w.Count(policy.Node) != 0 {
			t.Error("the Nodes count as listed")
		}
		if !w.Has(policy.Machine, types.NamespacedName{Namespace: "n", Name: "1"}) || len(slices.Collect(w.in("n"))) != 1 {
			t.Error("the machine is not cached")
		}
	})
}
