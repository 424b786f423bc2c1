package azure_test

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/driver"
	"github.com/machine-controller-fleet/machine-controller-fleet/driver/azure/azuretest"
)

// otherGroup is a resource group that does not exist.
const otherGroup = "shoot--b"

// A resource group of the class that does not exist is not the absence of a VM that was created in
// another one.
func TestGroupThatDoesNotExistHidesNoVM(t *testing.T) {
	s := serve(t, azuretest.Config{})
	s.RemoveGroup(subscription, otherGroup)
	d := s.driver(t, nil)
	of := target(machine("a"), specOf(emptyDisk))
	vm, err := create(t, d, of)
	if err != nil {
		t.Fatal(err)
	}
	of.Class = class(specIn(otherGroup))
	resp, err := d.GetMachineStatus(t.Context(), driver.GetMachineStatusRequest{Target: of})
	if err != nil || resp.ProviderID != vm.ProviderID {
		t.Errorf("status: %q, %v; want the VM of the group that the class has named before", resp.ProviderID, err)
	}
	if _, err := create(t, d, target(machine("b"), specIn(otherGroup))); driver.CodeOf(err) != driver.InvalidArgument {
		t.Errorf("a create in a group that does not exist: %v, want InvalidArgument", err)
	}
	s.remove(t, d, of)
	if len(s.VMs()) > 0 {
		t.Errorf("after the delete: %v, want no VM", s.VMs())
	}
}

// A resource group that was deleted with all in it does not keep a machine from being deleted.
func TestGroupThatWasDeletedEndsTheDeletion(t *testing.T) {
	for name, recorded := range map[string]bool{"with a provider ID": true, "without": false} {
		t.Run(name, func(t *testing.T) {
			s := serve(t, azuretest.Config{})
			d := s.driver(t, nil)
			of := target(machine("a"), specOf(emptyDisk))
			vm, err := create(t, d, of)
			if err != nil {
				t.Fatal(err)
			}
			if recorded {
				of.Machine.Spec.ProviderID = vm.ProviderID
			}
			s.RemoveGroup(subscription, group)
			if _, err := d.GetMachineStatus(t.Context(), driver.GetMachineStatusRequest{Target: of}); driver.CodeOf(err) != driver.NotFound {
				t.Errorf("status: %v, want NotFound", err)
			}
			if resp, err := d.DeleteMachine(t.Context(), driver.DeleteMachineRequest{Target: of}); err != nil || !resp.Gone {
				t.Errorf("gone=%t, %v; want it to be gone", resp.Gone, err)
			}
		})
	}
}

// A VM that the cloud does not show yet is not gone.
func TestVMThatIsNotShownYetIsNotGone(t *testing.T) {
	for name, isNew := range map[string]bool{
		"of a new machine, whose create was not recorded": true, "of a machine whose create was recorded": false,
	} {
		t.Run(name, func(t *testing.T) {
			s := serve(t, azuretest.Config{})
			s.HideVMs(true)
			d := s.driver(t, nil)
			of := target(machine("a"), specOf(emptyDisk))
			of.Machine.CreationTimestamp = metav1.NewTime(s.clock.Now().Add(-time.Hour))
			created, err := d.CreateMachine(t.Context(), driver.CreateMachineRequest{Target: of, UserData: []byte(userData)})
			if err != nil {
				t.Fatal(err)
			}
			if isNew {
				of.Machine.CreationTimestamp = metav1.NewTime(s.clock.Now())
			} else {
				of.Machine.Spec.ProviderID, of.Machine.Status.LastKnownState = created.ProviderID, created.LastKnownState
				if _, err := d.GetMachineStatus(t.Context(), driver.GetMachineStatusRequest{Target: of}); driver.CodeOf(err) != driver.Unavailable {
					t.Errorf("status: %v, want Unavailable", err)
				}
			}
			for _, part := range s.All() { // what the VM uses does not prove that it exists
				if len(s.VMs()) > 0 && part.ID != s.VMs()[0].ID {
					s.Forget(part.ID)
				}
			}
			resp, err := d.DeleteMachine(t.Context(), driver.DeleteMachineRequest{Target: of})
			if err != nil || resp.Gone {
				t.Errorf("gone=%t, %v; the cloud has %v", resp.Gone, err, s.VMs())
			}
			s.HideVMs(false)
			s.remove(t, d, of)
			if len(s.VMs()) > 0 {
				t.Errorf("the cloud has %v, want no VM", s.VMs())
			}
		})
	}
}
