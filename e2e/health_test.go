//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/simulated/cloudapi"
)

// TestDeadVMIsReplaced: the cloud loses a VM. Kubernetes sees that when the Lease of its Node has
// not been renewed for a while, the machine becomes Unknown, and after its health timeout another
// one replaces it; the others stay.
func TestDeadVMIsReplaced(t *testing.T) {
	t.Parallel()
	s := newSpace(t, shared(t), "vm-dies", "")
	s.deploy("pool", 3, func(d *v1alpha1.MachineDeployment) {
		d.Spec.Template.Spec.MachineConfiguration = &v1alpha1.MachineConfiguration{
			MachineHealthTimeout: &metav1.Duration{Duration: 5 * time.Second},
		}
	})
	s.running("pool", 3)
	before := s.joined()
	victim := slices.Min(slices.Collect(maps.Keys(before)))
	s.must(s.lab.Cloud.Act(t.Context(), before[victim], cloudapi.ActionDie))
	var dead v1alpha1.Machine
	s.lasting("machine "+victim+" is Unknown", func(ctx context.Context) error {
		machines, err := s.machines(ctx, "pool")
		if err != nil {
			return err
		}
		for _, m := range machines {
			op := m.Status.LastOperation
			if m.Name == victim && m.Status.CurrentStatus.Phase == v1alpha1.MachineUnknown &&
				strings.HasSuffix(m.Spec.ProviderID, "/"+before[victim]) &&
				op.Type == v1alpha1.MachineOperationHealthCheck && op.State == v1alpha1.MachineStateProcessing {
				dead = m
				return nil
			}
		}
		return fmt.Errorf("none of %d machines is", len(machines))
	})
	s.oneEvent(dead.UID, v1alpha1.EventNodeUnhealthy)

	s.lasting("machine "+victim+" is replaced", func(ctx context.Context) error {
		machines, err := s.machines(ctx, "pool")
		if err == nil && (len(machines) != 3 || slices.ContainsFunc(machines, func(m v1alpha1.Machine) bool { return m.Name == victim })) {
			err = fmt.Errorf("there are %d machines", len(machines))
		}
		return err
	})
	s.running("pool", 3)
	s.oneEvent(dead.UID, v1alpha1.EventHealthTimedOut)
	s.reports("pool", 3)
	after := s.joined()
	delete(before, victim)
	for name, vm := range before {
		if after[name] != vm {
			t.Errorf("machine %s had VM %s and has %q", name, vm, after[name])
		}
	}
	s.remove("machinedeployments", "pool")
	s.gone()
}
