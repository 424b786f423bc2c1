//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/driver"
	"github.com/machine-controller-fleet/machine-controller-fleet/driver/simulated/cloudapi"
)

// history lists all VMs that the cloud has created for the namespace.
func (s *space) history() []cloudapi.Instance {
	s.Helper()
	vms, err := s.lab.Cloud.History(s.Context(), s.name)
	s.must(err)
	return vms
}

// TestQuota: missing quota is reported in the format that the cluster-autoscaler reads, and the machine without a VM can be
// removed again.
func TestQuota(t *testing.T) {
	t.Parallel()
	s := newSpace(t, shared(t), "quota", `{"instanceType":"gpu-8"}`)
	quota := func(ctx context.Context, n string) error {
		return s.lab.Cloud.Set(ctx, `{"quotas":{"instancesByType":{"gpu-8":`+n+`}}}`)
	}
	s.must(quota(t.Context(), "1"))
	t.Cleanup(func() {
		if err := quota(context.WithoutCancel(t.Context()), "null"); err != nil {
			t.Error(err)
		}
	})
	s.deploy("pool", 1)
	s.running("pool", 1)
	before := s.joined()

	s.scale("pool", 3)
	const form = "Cloud provider message - machine codes error: code = [ResourceExhausted] message = ["
	s.fails("pool", 2, driver.ResourceExhausted, form)
	machines, err := s.machines(t.Context(), "pool")
	s.must(err)
	for _, m := range machines {
		if op := m.Status.LastOperation; op.ErrorCode != "" && (!strings.HasPrefix(op.Description, form) || !strings.HasSuffix(op.Description, "]")) {
			t.Errorf("machine %s: want a description of the form %s…], got %q", m.Name, form, op.Description)
		}
	}

	s.scale("pool", 1)
	s.running("pool", 1)
	if after := s.joined(); !maps.Equal(before, after) {
		t.Errorf("machines and their VMs were %v and are %v", before, after)
	}
	s.must(quota(t.Context(), "2"))
	s.scale("pool", 2)
	s.running("pool", 2)
	s.remove("machinedeployments", "pool")
	s.gone()
}

// TestNodeLosesReadiness: a Node is not ready for a while.
func TestNodeLosesReadiness(t *testing.T) {
	t.Parallel()
	s := newSpace(t, shared(t), "not-ready", "")
	d := s.deploy("pool", 2)
	s.running("pool", 2)
	before := s.joined()
	vm := before[slices.Min(slices.Collect(maps.Keys(before)))]

	s.must(s.lab.Cloud.Act(t.Context(), vm, cloudapi.ActionLoseReady))
	m := s.unhealthy(vm)
	s.oneEvent(m.UID, v1alpha1.EventNodeUnhealthy)
	s.reportsReady(d.Name, 1)
	s.must(s.lab.Cloud.Act(t.Context(), vm, cloudapi.ActionRecover))
	s.running("pool", 2)
	s.reports("pool", 2)
	if after := s.joined(); !maps.Equal(before, after) {
		t.Errorf("machines and their VMs were %v and are %v", before, after)
	}
	s.oneEvent(m.UID, v1alpha1.EventNodeHealthy)
	s.remove("machinedeployments", "pool")
	s.gone()
}

// TestVMDies: the cloud loses a VM. That is detected when the Lease of its Node was not renewed for a while.
func TestVMDies(t *testing.T) {
	t.Parallel()
	s := newSpace(t, shared(t), "vm-dies", "")
	s.deploy("pool", 2)
	s.running("pool", 2)
	before := s.joined()
	vm := before[slices.Min(slices.Collect(maps.Keys(before)))]
	s.must(s.lab.Cloud.Act(t.Context(), vm, cloudapi.ActionDie))
	s.unhealthy(vm)
	s.reportsReady("pool", 1)
	s.remove("machinedeployments", "pool")
	s.gone()
}

// unhealthy waits until the machine of the VM is Unknown.
func (s *space) unhealthy(vm string) *v1alpha1.Machine {
	s.Helper()
	var found v1alpha1.Machine
	s.eventually("the machine of "+vm+" is Unknown", func(ctx context.Context) error {
		machines, err := s.machines(ctx, "")
		if err != nil {
			return err
		}
		for _, m := range machines {
			op := m.Status.LastOperation
			if m.Status.CurrentStatus.Phase == v1alpha1.MachineUnknown && strings.HasSuffix(m.Spec.ProviderID, "/"+vm) &&
				op.Type == v1alpha1.MachineOperationHealthCheck && op.State == v1alpha1.MachineStateProcessing {
				found = m
				return nil
			}
		}
		return fmt.Errorf("none of %d machines is", len(machines))
	})
	return &found
}

// reportsReady waits until a MachineDeployment and its set report n ready machines.
func (s *space) reportsReady(pool string, n int32) {
	s.Helper()
	set := s.set(pool).Name
	s.eventually(fmt.Sprintf("the status of %s reports %d ready machines", pool, n), func(ctx context.Context) error {
		set, err := s.api().MachineSets(s.name).Get(ctx, set, metav1.GetOptions{})
		if err != nil {
			return err
		}
		d, err := s.api().MachineDeployments(s.name).Get(ctx, pool, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if set.Status.ReadyReplicas != n || d.Status.ReadyReplicas != n || d.Status.AvailableReplicas != n {
			return fmt.Errorf("they report %d and %d", set.Status.ReadyReplicas, d.Status.ReadyReplicas)
		}
		return nil
	})
}
