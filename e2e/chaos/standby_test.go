//go:build e2e

package chaos

import (
	"fmt"
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/harness"
)

// TestMoreReplicasThanSlots: the additional replica holds nothing and stands by. When another one
// dies it gets that one's slot, and the restarted replica stands by.
func TestMoreReplicasThanSlots(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("part of long runs")
	}
	const few, deployments, each = 2, 4, 2
	b := newBedWith(t, few+1, few)
	for i := range deployments {
		d := harness.Deployment(b.namespace, fmt.Sprintf("pool-%d", i), each)
		if _, err := b.lab.Machines.MachineV1alpha1().MachineDeployments(b.namespace).Create(b.ctx, d, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	b.running(t, deployments*each)
	spare := b.standsBy(t)

	s := b.standing(t)
	b.do(t, s.replica, harness.Kill)
	b.loses(t, s)
	b.waitHeld(t)
	b.atWork(t, spare)
	for i := range deployments {
		if err := b.lab.ScaleDeployment(b.ctx, b.namespace, fmt.Sprintf("pool-%d", i), each+1); err != nil {
			t.Fatal(err)
		}
	}
	b.running(t, deployments*(each+1))

	b.do(t, s.replica, harness.Start)
	b.ready(t, s.replica)
	b.waitHeld(t)
	if now := b.standsBy(t); now != s.replica {
		t.Errorf("want the restarted replica %[2]s to stand by, got %[1]s", now, s.replica)
	}
	b.end(t)
}

// standsBy returns the one replica that holds nothing. It lives, and may act.
func (b *bed) standsBy(t *testing.T) string {
	t.Helper()
	names, err := b.lab.Replicas(b.ctx)
	if err != nil {
		t.Fatal(err)
	}
	shares := b.shares(t)
	names = slices.DeleteFunc(names, func(name string) bool { return shares[name] > 0 })
	if len(names) != 1 {
		t.Fatalf("want one replica that holds nothing, got %q; slots by replica: %v", names, shares)
	}
	view, err := b.lab.Slots(b.ctx, names[0])
	if err != nil {
		t.Fatal(err)
	}
	if len(view.Here) > 0 || view.Suspended {
		t.Errorf("%s holds nothing and reports that it has %v (suspended: %t)", names[0], view.Here, view.Suspended)
	}
	b.ready(t, names[0])
	return names[0]
}
