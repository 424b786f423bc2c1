package azure_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/machine-controller-fleet/machine-controller-fleet/driver"
	"github.com/machine-controller-fleet/machine-controller-fleet/driver/azure"
	"github.com/machine-controller-fleet/machine-controller-fleet/driver/azure/azuretest"
)

// maxRequests is more than a life needs.
const maxRequests = 200

// A process that ends at any request, before the cloud has carried it out or after that, leaves a
// machine that the next process completes: with one VM, and nothing left after its delete.
func TestCutAtEveryRequest(t *testing.T) {
	for _, after := range []bool{false, true} {
		cuts := 0
		for number := 1; number <= maxRequests; number++ {
			s := serve(t, azuretest.Config{CreateTime: 3 * time.Second, DeleteTime: 2 * time.Second})
			s.Cut(number, after)
			name := fmt.Sprintf("cut at request %d, after its effect: %t", number, after)
			of := target(machine("a"), specOf(emptyDisk+","+diskOfImage))
			of.Machine.Spec.ProviderID = s.createAll(t, name, of).ProviderID
			if got := s.Stats().VMs; got != 1 || len(s.VMs()) != 1 {
				t.Errorf("%s: %d VMs were created, and %d exist; want 1", name, got, len(s.VMs()))
			}
			s.removeAll(t, name, of)
			for _, r := range s.All() {
				t.Errorf("%s: %s exists after the delete", name, r.ID)
			}
			if !s.HasCut() {
				break
			}
			cuts++
		}
		if cuts < 20 || cuts == maxRequests {
			t.Errorf("%d requests were cut; want all of a life", cuts)
		}
	}
}

// What a process leaves that ends at any request is found by a sweep, also when its Machine is
// deleted by force.
func TestSweepAfterACutAtEveryRequest(t *testing.T) {
	for number := 1; number <= maxRequests; number++ {
		s := serve(t, azuretest.Config{PageSize: 2})
		s.Cut(number, true)
		of := target(machine("a"), specOf(emptyDisk+","+diskOfImage))
		_, err := create(t, s.driver(t, nil), of)
		s.sweepAll(t, of)
		for _, r := range s.All() {
			t.Errorf("cut at request %d: %s exists after the sweep", number, r.ID)
		}
		if err == nil {
			return
		}
	}
	t.Error("no create has succeeded")
}

// createAll creates a VM, in another process after each failure.
func (s *site) createAll(t *testing.T, name string, of driver.Target) driver.VM {
	t.Helper()
	for range 20 {
		vm, err := create(t, s.driver(t, nil), of)
		if err == nil {
			return vm
		}
		s.clock.Step(max(driver.RetryAfterOf(err), time.Second))
	}
	t.Fatalf("%s: 20 creates have failed", name)
	return driver.VM{}
}

// removeAll deletes a VM, in another process after each failure.
func (s *site) removeAll(t *testing.T, name string, of driver.Target) {
	t.Helper()
	d := s.driver(t, nil)
	for range 30 {
		resp, err := d.DeleteMachine(t.Context(), driver.DeleteMachineRequest{Target: of})
		switch {
		case err != nil:
			d = s.driver(t, nil)
		case resp.Gone:
			return
		}
		s.clock.Step(time.Second)
	}
	t.Fatalf("%s: 30 deletes have not removed all", name)
}

// sweepAll deletes all that a sweep lists.
func (s *site) sweepAll(t *testing.T, of driver.Target) {
	t.Helper()
	d := s.driver(t, nil)
	scope := driver.ScopeRequest{Class: of.Class, Secret: of.Secret, ControlCluster: of.ControlCluster}
	for next, first := "", true; first || next != ""; first = false {
		page, err := d.ListResources(t.Context(), driver.ListResourcesRequest{ScopeRequest: scope, Continue: next})
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range page.Items {
			if _, err := d.DeleteResource(t.Context(), driver.DeleteResourceRequest{ScopeRequest: scope, Resource: r}); err != nil {
				t.Fatal(err)
			}
		}
		next = page.Continue
	}
}

// A VM that the cloud accepts, and then finds no capacity for, is reported with the cloud's code,
// and is started again.
func TestShortageAfterTheCloudHasAccepted(t *testing.T) {
	s := serve(t, azuretest.Config{CreateTime: time.Second})
	d := s.driver(t, nil)
	s.Shortage("ZonalAllocationFailed")
	of := target(machine("a"), specOf(emptyDisk))
	vm, err := create(t, d, of)
	if err != nil {
		t.Fatal(err)
	}
	of.Machine.Spec.ProviderID = vm.ProviderID
	status := func() (driver.VM, driver.Code) {
		resp, err := d.GetMachineStatus(t.Context(), driver.GetMachineStatusRequest{Target: of})
		return resp.VM, driver.CodeOf(err)
	}
	if _, code := status(); code != driver.OK {
		t.Errorf("status while the VM is created: %v, want OK", code)
	}
	s.clock.Step(2 * time.Second)
	if found, code := status(); code != driver.Uninitialized || found.ProviderID != vm.ProviderID {
		t.Errorf("status without capacity: %v of %q, want Uninitialized of the VM", code, found.ProviderID)
	}
	if repeated, err := create(t, d, of); err != nil || repeated.ProviderID != vm.ProviderID {
		t.Errorf("a repeated create: %q, %v; want the VM", repeated.ProviderID, err)
	}
	initialize := func() error {
		_, err := d.InitializeMachine(t.Context(), driver.InitializeMachineRequest{Target: of})
		return err
	}
	if err := initialize(); driver.CodeOf(err) != driver.ResourceExhausted || !strings.Contains(err.Error(), "ZonalAllocationFailed") {
		t.Errorf("initialize without capacity: %v, want ResourceExhausted with the cloud's code", err)
	}
	s.clock.Step(2 * time.Second)
	if _, code := status(); code != driver.Uninitialized {
		t.Errorf("status after a start without capacity: %v, want Uninitialized", code)
	}
	s.Shortage("")
	if err := initialize(); driver.CodeOf(err) != driver.ResourceExhausted {
		t.Errorf("initialize with capacity: %v, want ResourceExhausted for the start before it", err)
	}
	s.clock.Step(2 * time.Second)
	if _, code := status(); code != driver.OK {
		t.Errorf("status after a start with capacity: %v, want OK", code)
	}
	if err := initialize(); err != nil {
		t.Errorf("initialize of a VM that runs: %v", err)
	}
	s.remove(t, d, of)
	if got := s.Stats().VMs; got != 1 || len(s.All()) > 0 {
		t.Errorf("%d VMs were created, %v are left; want 1, and nothing", got, s.All())
	}
}

// A create holds no worker while the cloud creates a disk, and continues with it.
func TestCreateDoesNotWaitForDisks(t *testing.T) {
	s := serve(t, azuretest.Config{CreateTime: time.Minute})
	d := s.driver(t, nil)
	of := target(machine("a"), specOf(diskOfImage))
	for range 2 {
		_, err := create(t, d, of)
		if driver.CodeOf(err) != driver.Unavailable || driver.RetryAfterOf(err) == 0 || len(s.VMs()) > 0 {
			t.Fatalf("while the disk is created: %v and %d VMs; want Unavailable with a time to wait, and none", err, len(s.VMs()))
		}
	}
	s.clock.Step(time.Minute)
	if _, err := create(t, d, of); err != nil {
		t.Fatal(err)
	}
	if got, want := len(s.All()), 4; got != want { // VM, network interface, two disks
		t.Errorf("%d resources, want %d: %v", got, want, s.All())
	}
}

// A VM of Machine Controller Manager, with its form of a provider ID, is adopted and deleted with
// what belongs to it.
func TestVMOfMachineControllerManager(t *testing.T) {
	s := serve(t, azuretest.Config{})
	d := s.driver(t, nil)
	s.Create(vmID("a"), map[string]string{"kubernetes.io-cluster-shoot--a": "1", "kubernetes.io-role-node": "1"})
	of := target(machine("a"), specOf(emptyDisk))
	of.Machine.Spec.ProviderID = "azure:///westeurope/a"
	status := func() (driver.GetMachineStatusResponse, error) {
		return d.GetMachineStatus(t.Context(), driver.GetMachineStatusRequest{Target: of})
	}
	if resp, err := status(); driver.CodeOf(err) != driver.NotFound || !resp.Left {
		t.Errorf("without adoption: %v, left=%t; want NotFound, and left", err, resp.Left)
	}
	of.Adopt = true
	resp, err := status()
	if err != nil || resp.ProviderID != "azure://"+vmID("a") || resp.NodeName != "a" {
		t.Errorf("with adoption: %+v, %v; want the VM with the provider ID of its Node", resp, err)
	}
	listed, err := d.ListMachines(t.Context(), driver.ListMachinesRequest{Class: of.Class, Secret: of.Secret})
	if err != nil || listed.Machines["azure://"+vmID("a")] != "a" {
		t.Errorf("listed %v, %v; want the VM", listed.Machines, err)
	}
	s.remove(t, d, of)
	if len(s.All()) > 0 {
		t.Errorf("after the delete: %v, want nothing", s.All())
	}
}

// Two namespaces with a Machine of one name use one resource group.
func TestNamesakesInOneResourceGroup(t *testing.T) {
	s := serve(t, azuretest.Config{})
	d := s.driver(t, nil)
	one, other := target(machine("a"), specOf(emptyDisk)), target(machine("a"), specOf(emptyDisk))
	other.Machine.Namespace, other.Machine.UID = "shoot--b", "uid-of-b"
	first, err := create(t, d, one)
	if err != nil {
		t.Fatal(err)
	}
	second, err := create(t, d, other)
	if err != nil || first.ProviderID == second.ProviderID || first.NodeName == second.NodeName {
		t.Fatalf("%v and %v, %v; want two VMs", first, second, err)
	}
	s.remove(t, d, one)
	if again, err := create(t, d, other); err != nil || again.ProviderID != second.ProviderID {
		t.Errorf("a create after the first name was freed: %v, %v; want %v", again, err, second)
	}
	s.remove(t, d, other)
	if len(s.All()) > 0 {
		t.Errorf("after the deletes: %v, want nothing", s.All())
	}
}

// A broken provider spec does not prevent the delete of a VM whose provider ID is known.
func TestDeleteWithABrokenSpec(t *testing.T) {
	for name, spec := range map[string]string{
		"not decoded": `"x"`, "mistyped": `{"location": 1, "resourceGroup": "` + group + `"}`, "incomplete": `{"resourceGroup": "` + group + `"}`,
	} {
		s := serve(t, azuretest.Config{})
		d := s.driver(t, nil)
		of := target(machine("a"), specOf(emptyDisk))
		vm, err := create(t, d, of)
		if err != nil {
			t.Fatal(err)
		}
		of.Class, of.Machine.Spec.ProviderID = class(spec), vm.ProviderID
		resp, err := d.DeleteMachine(t.Context(), driver.DeleteMachineRequest{Target: of})
		if err != nil || !resp.Owned {
			t.Errorf("%s: owned=%t, %v; want the VM to be deleted", name, resp.Owned, err)
		}
		if len(s.VMs()) > 0 {
			t.Errorf("%s: the VM exists", name)
		}
	}
}

// A disk of the Machine that its owner has attached to another VM is not deleted, and prevents
// nothing.
func TestDeleteLeavesWhatAnotherVMUses(t *testing.T) {
	s := serve(t, azuretest.Config{})
	d := s.driver(t, nil)
	of := target(machine("a"), specOf(diskOfImage))
	s.Fail(azuretest.PartialCreate)
	if _, err := create(t, d, of); err == nil {
		t.Fatal("the create has succeeded")
	}
	s.Fail("")
	disk := strings.Replace(vmID("a-1-data-disk"), "virtualMachines", "disks", 1)
	s.Use(disk, vmID("of-another"))
	s.remove(t, d, of)
	if left := s.All(); len(left) != 1 || left[0].ID != disk {
		t.Errorf("left are %v, want the disk only", left)
	}
}

// Credentials are cached by their content: one token for many calls, and another one for another
// Secret.
func TestOneTokenForManyCalls(t *testing.T) {
	s := serve(t, azuretest.Config{})
	d := s.driver(t, nil)
	of := target(machine("a"), specOf(emptyDisk))
	for range 5 {
		_, err := d.GetMachineStatus(t.Context(), driver.GetMachineStatusRequest{Target: of})
		if driver.CodeOf(err) != driver.NotFound {
			t.Fatal(err)
		}
	}
	if got := s.Stats().Tokens; got != 1 {
		t.Errorf("%d tokens, want 1", got)
	}
	of.Secret[azure.SecretClientSecret] = []byte("w-r-o-n-g-secret")
	_, err := d.GetMachineStatus(t.Context(), driver.GetMachineStatusRequest{Target: of})
	if driver.CodeOf(err) != driver.Unauthenticated || !strings.Contains(err.Error(), "7000215") ||
		strings.Contains(err.Error(), "w-r-o-n-g") {
		t.Errorf("with a wrong secret: %v; want Unauthenticated with the code of Entra ID, and without the secret", err)
	}
}

// The agreement of a marketplace plan is accepted once, and few requests are sent for further
// machines.
func TestMarketplaceAgreement(t *testing.T) {
	s := serve(t, azuretest.Config{})
	d := s.driver(t, nil)
	if _, err := create(t, d, target(machine("a"), specOf(emptyDisk))); err != nil || s.Agreed() != 1 {
		t.Fatalf("%v and %d agreements, want 1", err, s.Agreed())
	}
	before := s.Stats()
	if _, err := create(t, d, target(machine("b"), specOf(emptyDisk))); err != nil {
		t.Fatal(err)
	}
	after := s.Stats()
	if requests, writes := after.Requests-before.Requests, after.Writes-before.Writes; requests != 6 || writes != 2 {
		t.Errorf("a further create sent %d requests and %d writes, want 6 and 2", requests, writes)
	}
	skipped := strings.Replace(specOf(emptyDisk), `"urn": "sap:`, `"skipMarketplaceAgreement": true, "urn": "sap:`, 1)
	s = serve(t, azuretest.Config{})
	if _, err := create(t, s.driver(t, nil), target(machine("a"), skipped)); err != nil || s.Agreed() != 0 {
		t.Errorf("skipped: %v and %d agreements, want none", err, s.Agreed())
	}
}
