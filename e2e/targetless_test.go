//go:build e2e

package e2e

import (
	"context"
	"errors"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/harness"
)

// TestNoTargetCluster creates machines that do not become Nodes. They are available when they have existed for minReadySeconds,
// which a flag switches on.
func TestNoTargetCluster(t *testing.T) {
	t.Parallel()
	lab := startLab(t, "targetless", func(o *harness.Options) { o.FleetFlags = "--target-kubeconfig=none --count-min-ready-seconds" })
	s := newSpace(t, lab, "targetless", "")
	const minReady = 5 * time.Second
	s.deploy("pool", 2, func(d *v1alpha1.MachineDeployment) { d.Spec.MinReadySeconds = int32(minReady.Seconds()) })
	s.eventually("2 machines are available", func(ctx context.Context) error {
		// The machines are read last: they are at least as old as when they were reported.
		d, err1 := s.api().MachineDeployments(s.name).Get(ctx, "pool", metav1.GetOptions{})
		sets, err2 := s.api().MachineSets(s.name).List(ctx, metav1.ListOptions{})
		machines, err3 := s.machines(ctx, "pool")
		s.must(errors.Join(err1, err2, err3))
		reported := d.Status.AvailableReplicas
		for _, set := range sets.Items {
			reported = max(reported, set.Status.AvailableReplicas)
		}
		if old := oldEnough(machines, minReady); reported > old {
			s.Errorf("%d machines are reported as available, and %d have existed for %s", reported, old, minReady)
		}
		var wrong complaints
		wrong.unless(len(machines) == 2, "there are %d", len(machines))
		for _, m := range machines {
			wrong.unless(m.Status.CurrentStatus.Phase == v1alpha1.MachineAvailable && m.Spec.ProviderID != "", "%s: %+v", m.Name, m.Status)
			wrong.unless(hasAddress(m, corev1.NodeHostName) && hasAddress(m, corev1.NodeInternalIP), "%s has addresses %v", m.Name, m.Status.Addresses)
		}
		wrong.unless(d.Status.AvailableReplicas == 2, "the MachineDeployment reports %d", d.Status.AvailableReplicas)
		return wrong.err()
	})
	s.noTokens()
	s.scale("pool", 1)
	s.eventually("one is gone, with its VM", func(ctx context.Context) error {
		machines, err := s.machines(ctx, "pool")
		s.must(err)
		vms, err := s.lab.Cloud.VMs(ctx, s.name)
		var wrong complaints
		wrong.unless(len(machines) == 1 && len(vms) == 1, "there are %d machines and %d VMs", len(machines), len(vms))
		wrong.unless(err == nil, "%w", err)
		return wrong.err()
	})
	s.remove("machinedeployments", "pool")
	s.gone()
}

// oldEnough counts the machines that have been in their phase for so long.
func oldEnough(machines []v1alpha1.Machine, age time.Duration) (n int32) {
	for _, m := range machines {
		if time.Since(m.Status.CurrentStatus.LastUpdateTime.Time) >= age {
			n++
		}
	}
	return n
}

func hasAddress(m v1alpha1.Machine, kind corev1.NodeAddressType) bool {
	for _, a := range m.Status.Addresses {
		if a.Type == kind && a.Address != "" {
			return true
		}
	}
	return false
}
