//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/driver"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/harness"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/simulated"
)

// sideProvider is a provider whose driver is a separate process.
const sideProvider = "side"

// TestDriverProcess: one fleet serves two providers, and the driver of one is a process. While that
// is away, its machine reports it, and machines of the other provider are created. Then it is
// killed again and again during creates, and each machine has one VM in the end.
func TestDriverProcess(t *testing.T) {
	t.Parallel()
	const machines, between = 20, 4 // so many VMs are created between two kills
	lab := startLab(t, "driver-process", func(o *harness.Options) {
		o.Replicas = 2
		o.CloudsimFlags = "--create-latency=500ms"
		o.Drivers = sideProvider + "=simulated-driver --provider=" + sideProvider + " --endpoints={cloud}"
	})
	s := newSpace(t, lab, "driver-process", "")
	class := harness.Class(s.name, "")
	class.Name, class.Provider = sideProvider, sideProvider
	_, err := s.api().MachineClasses(s.name).Create(t.Context(), class, metav1.CreateOptions{})
	s.must(err)
	do := func(actions ...string) {
		t.Helper()
		for _, action := range actions {
			s.must(lab.Do(t.Context(), "driver-"+sideProvider, action))
		}
	}
	do(harness.Kill)
	s.deploy("side", 1, func(d *v1alpha1.MachineDeployment) { d.Spec.Template.Spec.Class.Name = sideProvider })
	s.deploy("own", 2)
	s.running("own", 2)
	s.eventually("the machine reports that its driver is away", func(ctx context.Context) error {
		all, err := s.machines(ctx, "side")
		if err != nil {
			return err
		}
		if len(all) != 1 {
			return fmt.Errorf("there are %d machines", len(all))
		}
		op := all[0].Status.LastOperation
		if op.ErrorCode != driver.Unavailable.String() || !strings.Contains(op.Description, "driver of provider "+sideProvider) {
			return fmt.Errorf("its last operation is %+v", op)
		}
		return nil
	})
	do(harness.Start)
	s.running("side", 1)

	s.scale("side", machines)
	for want := between; want < machines; want += between {
		s.eventually(fmt.Sprintf("%d VMs are created", want), func(ctx context.Context) error {
			vms, err := lab.Cloud.VMs(ctx, s.name)
			if err == nil && len(vms) < want {
				err = fmt.Errorf("%d are", len(vms))
			}
			return err
		})
		do(harness.Kill, harness.Start)
	}
	s.running("side", machines)
	created, err := lab.Cloud.History(t.Context(), s.name)
	s.must(err)
	vms := map[string]int{}
	for _, vm := range created {
		vms[vm.Tags[simulated.TagMachineUID]]++
	}
	all, err := s.machines(t.Context(), "")
	s.must(err)
	for _, m := range all {
		if n := vms[string(m.UID)]; n != 1 {
			t.Errorf("machine %s got %d VMs, want 1", m.Name, n)
		}
	}
	if len(vms) != len(all) {
		t.Errorf("%d machines have VMs, want %d", len(vms), len(all))
	}
	s.remove("machinedeployments", "side")
	s.remove("machinedeployments", "own")
	s.gone()
}
