package driver

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

// Checked returns a driver whose answers are checked before any caller uses them: the provider ID,
// Node name and addresses of a VM are copied to labels, annotations and statuses, and a wrong Node
// name refers to the wrong Node. An answer that cannot describe a VM becomes Internal, see
// IsInvalidAnswer, and keeps its valid parts: a VM whose name is no use exists, and has to be
// deleted later. A field that is empty is left to the caller that needs it.
func Checked(d Driver) Driver { return checkedDriver{d} }

type checkedDriver struct{ next Driver }

var (
	_ Driver  = checkedDriver{}
	_ Sweeper = checkedDriver{}
)

// Unwrap returns the driver whose answers are checked.
func (d checkedDriver) Unwrap() Driver { return d.next }

// invalidAnswerError is the cause of the Error of an answer with invalid parts.
type invalidAnswerError struct{ wrong []string }

// Error describes the invalid parts.
func (e invalidAnswerError) Error() string {
	return fmt.Sprintf("the driver answered with %s; that is not used", strings.Join(e.wrong, ", and with "))
}

// IsInvalidAnswer reports whether err is that of Checked for an answer with invalid parts. The
// response has the others: what the call requested was done.
func IsInvalidAnswer(err error) bool {
	_, is := errors.AsType[invalidAnswerError](err)
	return is
}

// rejected returns the error of an answer: that of the driver, except Uninitialized, which has a
// VM; else one for the invalid parts.
func rejected(op Op, err error, wrong ...string) error {
	wrong = slices.DeleteFunc(wrong, func(part string) bool { return part == "" })
	if len(wrong) == 0 || err != nil && CodeOf(err) != Uninitialized {
		return err
	}
	return &Error{Code: Internal, Op: op, Err: invalidAnswerError{wrong}}
}

// described returns the valid parts of a VM that was returned with an error, and what is invalid
// about the others; "" when nothing is. An error other than Uninitialized describes no VM.
func (vm VM) described(err error) (VM, string) {
	if err != nil && CodeOf(err) != Uninitialized {
		return VM{}, ""
	}
	var wrong []string
	if !isID(vm.ProviderID) {
		wrong = append(wrong, fmt.Sprintf("the provider ID %q of %d bytes; expected at most %d printable characters without spaces",
			Clean(vm.ProviderID), len(vm.ProviderID), MaxProviderID))
		vm.ProviderID = ""
	}
	if vm.NodeName != "" {
		// The name becomes the value of a label, too.
		if errs := slices.Concat(validation.IsDNS1123Subdomain(vm.NodeName), validation.IsValidLabelValue(vm.NodeName)); len(errs) > 0 {
			wrong = append(wrong, fmt.Sprintf("the node name %q: %s", Clean(vm.NodeName), strings.Join(errs, "; ")))
			vm.NodeName = ""
		}
	}
	if len(vm.State) > MaxVMState || !isID(vm.State) { // nothing depends on it
		vm.State = ""
	}
	if problem := wrongAddresses(vm.Addresses); problem != "" {
		wrong, vm.Addresses = append(wrong, problem), nil
	}
	return vm, strings.Join(wrong, ", and with ")
}

// wrongAddresses describes what is invalid about addresses; "" when nothing is.
func wrongAddresses(addresses []corev1.NodeAddress) string {
	if len(addresses) > MaxAddresses {
		return fmt.Sprintf("%d addresses; expected at most %d", len(addresses), MaxAddresses)
	}
	for _, a := range addresses {
		if len(a.Address) > MaxAddress || !isID(a.Address) || !isID(string(a.Type)) {
			return fmt.Sprintf("the address %q of type %q and %d bytes; expected at most %d printable characters without spaces",
				Clean(a.Address), Clean(string(a.Type)), len(a.Address), MaxAddress)
		}
	}
	return ""
}

// noted returns a driver's note if it is valid, and what is invalid about it; "" when nothing is.
func noted(lastKnownState string) (note, wrong string) {
	if size := len(lastKnownState); size > MaxLastKnownState {
		return "", fmt.Sprintf("a last known state of %d bytes; expected at most %d", size, MaxLastKnownState)
	}
	if !utf8.ValidString(lastKnownState) {
		return "", "a last known state that is no UTF-8"
	}
	return lastKnownState, ""
}

// isID reports whether a text can be an ID of a cloud, or none.
func isID(text string) bool {
	return len(text) <= MaxProviderID && utf8.ValidString(text) &&
		!strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) || unicode.IsSpace(r) })
}

// GetUnknownFields checks the number of fields, and their paths.
func (d checkedDriver) GetUnknownFields(ctx context.Context, req GetUnknownFieldsRequest) (GetUnknownFieldsResponse, error) {
	resp, err := d.next.GetUnknownFields(ctx, req)
	if err != nil {
		return GetUnknownFieldsResponse{}, err
	}
	if len(resp.Fields) > MaxUnknownFields {
		return GetUnknownFieldsResponse{}, Errorf(OpFields, Internal, "the driver answered with %d unknown fields; expected at most %d",
			len(resp.Fields), MaxUnknownFields)
	}
	for _, path := range resp.Fields {
		if !isFieldPath(path) {
			return GetUnknownFieldsResponse{}, Errorf(OpFields, Internal,
				"the driver answered with the field %q; expected 1 to %d printable characters without spaces and commas",
				Clean(path), MaxFieldPath)
		}
	}
	resp.Fields = slices.Compact(slices.Sorted(slices.Values(resp.Fields))) // in an order that changes, each answer would be news
	return resp, nil
}

// CreateMachine checks the VM.
func (d checkedDriver) CreateMachine(ctx context.Context, req CreateMachineRequest) (CreateMachineResponse, error) {
	resp, err := d.next.CreateMachine(ctx, req)
	var wrongVM, wrongNote string
	resp.VM, wrongVM = resp.described(err)
	resp.LastKnownState, wrongNote = noted(resp.LastKnownState)
	return resp, rejected(OpCreate, err, wrongVM, wrongNote)
}

// InitializeMachine checks the VM.
func (d checkedDriver) InitializeMachine(ctx context.Context, req InitializeMachineRequest) (InitializeMachineResponse, error) {
	resp, err := d.next.InitializeMachine(ctx, req)
	var wrong string
	resp.VM, wrong = resp.described(err)
	return resp, rejected(OpInitialize, err, wrong)
}

// DeleteMachine checks the driver's note. After the end of the VM nothing needs it, so an invalid
// one does not keep the Machine.
func (d checkedDriver) DeleteMachine(ctx context.Context, req DeleteMachineRequest) (DeleteMachineResponse, error) {
	resp, err := d.next.DeleteMachine(ctx, req)
	var wrong string
	if resp.LastKnownState, wrong = noted(resp.LastKnownState); resp.Gone {
		return resp, err
	}
	return resp, rejected(OpDelete, err, wrong)
}

// GetMachineStatus checks the VM.
func (d checkedDriver) GetMachineStatus(ctx context.Context, req GetMachineStatusRequest) (GetMachineStatusResponse, error) {
	resp, err := d.next.GetMachineStatus(ctx, req)
	var wrong string
	resp.VM, wrong = resp.described(err)
	return resp, rejected(OpStatus, err, wrong)
}

// ListMachines checks the number of VMs, and their names.
func (d checkedDriver) ListMachines(ctx context.Context, req ListMachinesRequest) (ListMachinesResponse, error) {
	resp, err := d.next.ListMachines(ctx, req)
	if len(resp.Machines) > MaxListed {
		return ListMachinesResponse{}, Errorf(OpList, Internal, "the driver listed %d VMs; expected at most %d", len(resp.Machines), MaxListed)
	}
	for id, name := range resp.Machines {
		if id == "" || !isID(id) || !isID(name) {
			return ListMachinesResponse{}, Errorf(OpList, Internal,
				"the driver listed provider ID %q with the name %q; expected printable characters without spaces",
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
