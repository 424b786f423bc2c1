//go:build e2e

package e2e

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/harness"
)

// TestNoTargetCluster makes machines that become no Nodes.
func TestNoTargetCluster(t *testing.T) {
	t.Parallel()
	lab := startLab(t, "targetless", func(o *harness.Options) { o.FleetFlags = "--target-kubeconfig=none" })
	s := newSpace(t, lab, "targetless", "")
	s.deploy("pool", 2)
	s.eventually("2 machines are available", func(ctx context.Context) error {
		machines, err1 := s.machines(ctx, "pool")
		d, err2 := s.api().MachineDeployments(s.name).Get(ctx, "pool", metav1.GetOptions{})
		s.must(err1)
		s.must(err2)
		var wrong complaints
		wrong.unless(len(machines) == 2, "there are %d", len(machines))
		for _, m := range machines {
			wrong.unless(m.Status.CurrentStatus.Phase == v1alpha1.MachineAvailable && m.Spec.ProviderID != "", "%s: %+v", m.Name, m.Status)
			wrong.unless(hasAddress(m, corev1.NodeHostName) && hasAddress(m, corev1.NodeInternalIP), "%s has addresses %v", m.Name, m.Status.Addresses)
		}
		wrong.unless(d.Status.AvailableReplicas == 2, "the MachineDeployment tells of %d", d.Status.AvailableReplicas)
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

func hasAddress(m v1alpha1.Machine, kind corev1.NodeAddressType) bool {
	for _, a := range m.Status.Addresses {
		if a.Type == kind && a.Address != "" {
			return true
		}
	}
	return false
}
