package driver

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
)

// What is valid of an answer is kept: the VM exists, and its deletion needs what is known of it.
func TestCheckedPartlyInvalidAnswerKeepsItsValidParts(t *testing.T) {
	long := strings.Repeat("x", 64)
	addresses := []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "10.0.0.1"}}
	for name, tc := range map[string]struct{ answer, want VM }{
		"a node name that is no label value": {
			VM{ProviderID: "cloud:///i-1", NodeName: long, Addresses: addresses}, VM{ProviderID: "cloud:///i-1", Addresses: addresses},
		},
		"an invalid provider ID": {VM{ProviderID: "a b", NodeName: "m"}, VM{NodeName: "m"}},
		"an invalid address": {VM{ProviderID: "cloud:///i-1", NodeName: "m", Addresses: []corev1.NodeAddress{{Address: "a b"}}}, VM{
			ProviderID: "cloud:///i-1", NodeName: "m",
		}},
		"nothing valid": {VM{ProviderID: "a b", NodeName: long}, VM{}},
	} {
		for _, fails := range []error{nil, Errorf(OpStatus, Uninitialized, "not set up")} {
			d := Checked(fixedDriver{vm: tc.answer, note: "kept", fails: fails})
			created, err := d.CreateMachine(t.Context(), CreateMachineRequest{})
			if diff := cmp.Diff(CreateMachineResponse{VM: tc.want, LastKnownState: "kept"}, created); diff != "" || !IsInvalidAnswer(err) ||
				CodeOf(err) != Internal {
				t.Errorf("%s: %v; %s", name, err, diff)
			}
			found, err := d.GetMachineStatus(t.Context(), GetMachineStatusRequest{})
			if diff := cmp.Diff(GetMachineStatusResponse{VM: tc.want}, found); diff != "" || !IsInvalidAnswer(err) {
				t.Errorf("%s: %v; %s", name, err, diff)
			}
		}
	}
}

// An error that comes with a VM describes none, regardless of what the VM is.
func TestCheckedErrorDropsItsVM(t *testing.T) {
	for _, vm := range []VM{{ProviderID: "cloud:///i-1", NodeName: "m"}, {ProviderID: "a b"}} {
		created, err := Checked(fixedDriver{vm: vm, fails: errors.New("broken")}).CreateMachine(t.Context(), CreateMachineRequest{})
		if created.ProviderID != "" || created.NodeName != "" || IsInvalidAnswer(err) || err == nil {
			t.Errorf("%+v with %v", created, err)
		}
	}
}

// A VM that is gone is gone, regardless of what the driver notes.
func TestInvalidNoteOfADeletionIsDropped(t *testing.T) {
	note := strings.Repeat("x", MaxLastKnownState+1)
	if resp, err := Checked(fixedDriver{note: note}).DeleteMachine(t.Context(), DeleteMachineRequest{}); err != nil || !resp.Gone ||
		resp.LastKnownState != "" {
		t.Errorf("%t, %d bytes, %v; want that it is gone, without the note", resp.Gone, len(resp.LastKnownState), err)
	}
	if _, err := Checked(ending{fixedDriver{note: note}}).DeleteMachine(t.Context(), DeleteMachineRequest{}); !IsInvalidAnswer(err) {
		t.Errorf("%v; want that a VM which is ending needs its note", err)
	}
}

// ending is a driver whose VMs never end.
type ending struct{ fixedDriver }

func (e ending) DeleteMachine(ctx context.Context, req DeleteMachineRequest) (DeleteMachineResponse, error) {
	resp, err := e.fixedDriver.DeleteMachine(ctx, req)
	resp.Gone = false
	return resp, err
}

// Nothing depends on the state of a VM: one that is invalid is not shown, and the VM is.
func TestCheckedInvalidStateIsDropped(t *testing.T) {
	for state, want := range map[string]string{
		"stopped": "stopped", strings.Repeat("x", MaxVMState): strings.Repeat("x", MaxVMState),
		strings.Repeat("x", MaxVMState+1): "", "a\nb": "", "\xff": "",
	} {
		resp, err := Checked(fixedDriver{vm: VM{ProviderID: "cloud:///i-1", State: state}}).GetMachineStatus(t.Context(),
			GetMachineStatusRequest{})
		if err != nil || resp.ProviderID != "cloud:///i-1" || resp.State != want {
			t.Errorf("%q: want the VM with the state %q, got %+v, %v", state, want, resp.VM, err)
		}
	}
}

// Fields are written on the class: an answer in another order is no other answer.
func TestCheckedFieldsAreSorted(t *testing.T) {
	resp, err := Checked(fixedDriver{paths: []string{"b", "a", "b"}}).GetUnknownFields(t.Context(), GetUnknownFieldsRequest{})
	if diff := cmp.Diff([]string{"a", "b"}, resp.Fields); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
}
