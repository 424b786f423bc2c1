package drivertest

import (
	"context"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/driver"
)

// Clean deletes, through the driver, the VMs of an Env's Machines that a subtest has left. It is
// for clouds that are not fresh ones, and is called when the subtest has ended; Env.Run is
// required.
func Clean(t *testing.T, env Env) {
	t.Helper()
	if env.Run == "" {
		t.Fatal("drivertest.Clean: Env.Run is required, to recognize the Machines of the Env")
	}
	s := &suite{Env: env, t: t}
	for _, vm := range env.VMs(t) {
		if name, ours := strings.CutPrefix(string(vm.MachineUID), uidPrefix); ours && strings.HasPrefix(name, namePrefix+env.Run) {
			s.clean(name, vm)
		}
	}
}

// clean deletes one VM, also after the context of the test has ended.
func (s *suite) clean(name string, vm VM) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(s.t.Context()), s.callTimeout())
	defer cancel()
	m := &v1alpha1.Machine{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.Class.Namespace, Name: name, UID: vm.MachineUID},
		Spec:       v1alpha1.MachineSpec{ProviderID: vm.ProviderID},
	}
	for {
		resp, err := s.Driver.DeleteMachine(ctx, driver.DeleteMachineRequest{Target: s.target(m)})
		if err != nil {
			s.t.Errorf("VM %s is left: %v", vm.ProviderID, err)
		}
		if err != nil || resp.Gone {
			return
		}
	}
}
