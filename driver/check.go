package driver

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/util/validation"
)

// Checked returns a driver whose answers are checked before any caller uses them: the provider ID, Node name and addresses
// of a VM are copied to labels, annotations and statuses, and a wrong Node name refers to the wrong Node. An answer that cannot describe a VM
// becomes Internal: whether there is a VM is then not known. A field that is empty is left to the caller that needs it.
func Checked(d Driver) Driver { return checkedDriver{d} }

type checkedDriver struct{ next Driver }

var (
	_ Driver  = checkedDriver{}
	_ Sweeper = checkedDriver{}
)

// Unwrap returns the driver whose answers are checked.
func (d checkedDriver) Unwrap() Driver { return d.next }

// checked returns an answer if it is valid.
func checked[Resp any](op Op, resp Resp, err error, vm VM, lastKnownState string) (Resp, error) {
	wrong := vm.wrong()
	if size := len(lastKnownState); wrong == "" && size > MaxLastKnownState {
		wrong = fmt.Sprintf("a last known state of %d bytes; expected at most %d", size, MaxLastKnownState)
	}
	if wrong == "" && !utf8.ValidString(lastKnownState) {
		wrong = "a last known state that is no UTF-8"
	}
	if wrong == "" {
		return resp, err
	}
	var nothing Resp
	if err != nil && CodeOf(err) != Uninitialized {
		return nothing, err
	}
	return nothing, Errorf(op, Internal, "the driver answered with %s; the answer is not used", wrong)
}

// wrong describes what is invalid about a VM; "" when nothing is.
func (vm VM) wrong() string {
	if !isID(vm.ProviderID) {
		return fmt.Sprintf("the provider ID %q of %d bytes; expected at most %d printable characters without spaces",
			Clean(vm.ProviderID), len(vm.ProviderID), MaxProviderID)
	}
	if vm.NodeName != "" {
		// The name becomes the value of a label, too.
		if errs := slices.Concat(validation.IsDNS1123Subdomain(vm.NodeName), validation.IsValidLabelValue(vm.NodeName)); len(errs) > 0 {
			return fmt.Sprintf("the node name %q: %s", Clean(vm.NodeName), strings.Join(errs, "; "))
		}
	}
	if len(vm.Addresses) > MaxAddresses {
		return fmt.Sprintf("%d addresses; expected at most %d", len(vm.Addresses), MaxAddresses)
	}
	for _, a := range vm.Addresses {
		if len(a.Address) > MaxAddress || !isID(a.Address) || !isID(string(a.Type)) {
			return fmt.Sprintf("the address %q of type %q and %d bytes; expected at most %d printable characters without spaces",
				Clean(a.Address), Clean(string(a.Type)), len(a.Address), MaxAddress)
		}
	}
	return ""
}

// isID reports whether a text can be an ID of a cloud, or none.
func isID(text string) bool {
	return len(text) <= MaxProviderID && utf8.ValidString(text) &&
		!strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) || unicode.IsSpace(r) })
}

// CreateMachine checks the VM.
func (d checkedDriver) CreateMachine(ctx context.Context, req CreateMachineRequest) (CreateMachineResponse, error) {
	resp, err := d.next.CreateMachine(ctx, req)
	return checked(OpCreate, resp, err, resp.VM, resp.LastKnownState)
}

// InitializeMachine checks the VM.
func (d checkedDriver) InitializeMachine(ctx context.Context, req InitializeMachineRequest) (InitializeMachineResponse, error) {
	resp, err := d.next.InitializeMachine(ctx, req)
	return checked(OpInitialize, resp, err, resp.VM, "")
}

// DeleteMachine checks the driver's note.
func (d checkedDriver) DeleteMachine(ctx context.Context, req DeleteMachineRequest) (DeleteMachineResponse, error) {
	resp, err := d.next.DeleteMachine(ctx, req)
	return checked(OpDelete, resp, err, VM{}, resp.LastKnownState)
}

// GetMachineStatus checks the VM.
func (d checkedDriver) GetMachineStatus(ctx context.Context, req GetMachineStatusRequest) (GetMachineStatusResponse, error) {
	resp, err := d.next.GetMachineStatus(ctx, req)
	return checked(OpStatus, resp, err, resp.VM, "")
}

// ListMachines checks the number of VMs, and their names.
func (d checkedDriver) ListMachines(ctx context.Context, req ListMachinesRequest) (ListMachinesResponse, error) {
	resp, err := d.next.ListMachines(ctx, req)
	if len(resp.Machines) > MaxListed {
		return ListMachinesResponse{}, Errorf(OpList, Internal, "the driver listed %d VMs; expected at most %d", len(resp.Machines), MaxListed)
	}
	for id, name := range resp.Machines {
		if id == "" || !isID(id) || !isID(name) {
			return ListMachinesResponse{}, Errorf(OpList, Internal, "the driver listed provider ID %q with the name %q; expected printable characters without spaces",
				Clean(id), Clean(name))
		}
	}
	return resp, err
}

// GetVolumeIDs checks the number of IDs.
func (d checkedDriver) GetVolumeIDs(ctx context.Context, req GetVolumeIDsRequest) (GetVolumeIDsResponse, error) {
	resp, err := d.next.GetVolumeIDs(ctx, req)
	if len(resp.IDs) > len(req.Volumes) {
		return GetVolumeIDsResponse{}, Errorf(OpVolumeIDs, Internal, "the driver returned %d IDs of %d volumes", len(resp.IDs), len(req.Volumes))
	}
	return resp, err
}
