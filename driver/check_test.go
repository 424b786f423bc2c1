package driver

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// fixedDriver gives every call the same answer.
type fixedDriver struct {
	vm    VM
	note  string
	list  map[string]string
	ids   []string
	paths []string // of fields
	fails error
}

func (l fixedDriver) GetUnknownFields(context.Context, GetUnknownFieldsRequest) (GetUnknownFieldsResponse, error) {
	return GetUnknownFieldsResponse{Fields: l.paths}, l.fails
}

func (l fixedDriver) CreateMachine(context.Context, CreateMachineRequest) (CreateMachineResponse, error) {
	return CreateMachineResponse{VM: l.vm, LastKnownState: l.note}, l.fails
}

func (l fixedDriver) InitializeMachine(context.Context, InitializeMachineRequest) (InitializeMachineResponse, error) {
	return InitializeMachineResponse{VM: l.vm}, l.fails
}

func (l fixedDriver) DeleteMachine(context.Context, DeleteMachineRequest) (DeleteMachineResponse, error) {
	return DeleteMachineResponse{Gone: true, LastKnownState: l.note}, l.fails
}

func (l fixedDriver) GetMachineStatus(context.Context, GetMachineStatusRequest) (GetMachineStatusResponse, error) {
	return GetMachineStatusResponse{VM: l.vm}, l.fails
}

func (l fixedDriver) ListMachines(context.Context, ListMachinesRequest) (ListMachinesResponse, error) {
	return ListMachinesResponse{Machines: l.list}, l.fails
}

func (l fixedDriver) GetVolumeIDs(context.Context, GetVolumeIDsRequest) (GetVolumeIDsResponse, error) {
	return GetVolumeIDsResponse{IDs: l.ids}, l.fails
}

// wrong reports whether a VM has invalid parts.
func (vm VM) wrong() bool {
	_, problem := vm.described(nil)
	return problem != ""
}

// codes calls all methods.
func codes(t *testing.T, l fixedDriver) map[Op]Code {
	t.Helper()
	d := Checked(l)
	create, err1 := d.CreateMachine(t.Context(), CreateMachineRequest{})
	initialized, err2 := d.InitializeMachine(t.Context(), InitializeMachineRequest{})
	deleted, err3 := d.DeleteMachine(t.Context(), DeleteMachineRequest{})
	status, err4 := d.GetMachineStatus(t.Context(), GetMachineStatusRequest{})
	list, err5 := d.ListMachines(t.Context(), ListMachinesRequest{})
	volumes, err6 := d.GetVolumeIDs(t.Context(), GetVolumeIDsRequest{Volumes: []*corev1.PersistentVolumeSpec{{}}})
	unknown, err7 := d.GetUnknownFields(t.Context(), GetUnknownFieldsRequest{})
	for op, refused := range map[Op]bool{
		OpFields:     CodeOf(err7) == Internal && len(unknown.Fields) > 0,
		OpCreate:     create.wrong() || create.LastKnownState != "" && create.LastKnownState != strings.Repeat("\n", MaxLastKnownState),
		OpInitialize: initialized.wrong(), OpDelete: !deleted.Gone || len(deleted.LastKnownState) > MaxLastKnownState,
		OpStatus: status.wrong(), OpList: CodeOf(err5) == Internal && len(list.Machines) > 0,
		OpVolumeIDs: CodeOf(err6) == Internal && len(volumes.IDs) > 0,
	} {
		if refused {
			t.Errorf("%s: what is rejected is returned, or what is not is not", op)
		}
	}
	return map[Op]Code{
		OpCreate: CodeOf(err1), OpInitialize: CodeOf(err2), OpDelete: CodeOf(err3),
		OpStatus: CodeOf(err4), OpList: CodeOf(err5), OpVolumeIDs: CodeOf(err6), OpFields: CodeOf(err7),
	}
}

func TestAnswersAreChecked(t *testing.T) {
	most := map[string]string{}
	for i := range MaxListed {
		most[fmt.Sprint("cloud:///i-", i)] = "m"
	}
	many := maps.Clone(most)
	many["cloud:///one-more"] = "m"
	address := func(text string) VM {
		return VM{Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: text}}}
	}
	ofVM, ofNote := []Op{OpCreate, OpInitialize, OpStatus}, []Op{OpCreate} // of a VM that has ended no note is needed
	for name, tc := range map[string]struct {
		answer  fixedDriver
		refused []Op
	}{
		"nothing": {fixedDriver{}, nil},
		"in order": {fixedDriver{
			vm: VM{ProviderID: "azure:///subscriptions/a(b)/übung/i-1", NodeName: "ip-10-0-0-1.internal", Addresses: []corev1.NodeAddress{
				{Type: corev1.NodeInternalIP, Address: "fd00::1"}, {Type: corev1.NodeHostName, Address: "a.b"},
			}},
			note: strings.Repeat("\n", MaxLastKnownState), list: map[string]string{"cloud:///i-1": "m"}, ids: []string{"vol-1"},
			paths: []string{"a.b[].c"},
		}, nil},
		"at the limits": {fixedDriver{
			vm: VM{ProviderID: strings.Repeat("x", MaxProviderID), Addresses: slices.Repeat([]corev1.NodeAddress{
				{Type: corev1.NodeInternalIP, Address: strings.Repeat("1", MaxAddress)},
			}, MaxAddresses)},
			list: most, paths: slices.Repeat([]string{strings.Repeat("x", MaxFieldPath)}, MaxUnknownFields),
		}, nil},
		"a line in the ID":         {fixedDriver{vm: VM{ProviderID: "cloud:///i-1\nx"}}, ofVM},
		"a space in the ID":        {fixedDriver{vm: VM{ProviderID: "cloud:///i 1"}}, ofVM},
		"an ID that turns around":  {fixedDriver{vm: VM{ProviderID: "cloud:///\u202ei-1"}}, ofVM},
		"an ID that is no text":    {fixedDriver{vm: VM{ProviderID: "cloud:///\xff"}}, ofVM},
		"an ID without end":        {fixedDriver{vm: VM{ProviderID: strings.Repeat("x", MaxProviderID+1)}}, ofVM},
		"a name that is none":      {fixedDriver{vm: VM{NodeName: "a/../b"}}, ofVM},
		"a name without end":       {fixedDriver{vm: VM{NodeName: strings.Repeat("x", 64)}}, ofVM},
		"a name with a NUL":        {fixedDriver{vm: VM{NodeName: "a\x00b"}}, ofVM},
		"an address with a line":   {fixedDriver{vm: address("10.0.0.1\n")}, ofVM},
		"an address without end":   {fixedDriver{vm: address(strings.Repeat("1", MaxAddress+1))}, ofVM},
		"an address of a bad type": {fixedDriver{vm: VM{Addresses: []corev1.NodeAddress{{Type: "a b", Address: "x"}}}}, ofVM},
		"many addresses":           {fixedDriver{vm: VM{Addresses: make([]corev1.NodeAddress, MaxAddresses+1)}}, ofVM},
		"a note without end":       {fixedDriver{note: strings.Repeat("x", MaxLastKnownState+1)}, ofNote},
		"a note that is no text":   {fixedDriver{note: "\xff"}, ofNote},
		"many VMs":                 {fixedDriver{list: many}, []Op{OpList}},
		"a VM without ID":          {fixedDriver{list: map[string]string{"": "m"}}, []Op{OpList}},
		"a VM with a bad ID":       {fixedDriver{list: map[string]string{"cloud:///i\n1": "m"}}, []Op{OpList}},
		"a VM with a bad name":     {fixedDriver{list: map[string]string{"cloud:///i-1": "a\nb"}}, []Op{OpList}},
		"many fields":              {fixedDriver{paths: slices.Repeat([]string{"a"}, MaxUnknownFields+1)}, []Op{OpFields}},
		"a field without end":      {fixedDriver{paths: []string{strings.Repeat("x", MaxFieldPath+1)}}, []Op{OpFields}},
		"a field without a name":   {fixedDriver{paths: []string{""}}, []Op{OpFields}},
		"a field with a comma":     {fixedDriver{paths: []string{"a,b"}}, []Op{OpFields}},
		"a field with a line":      {fixedDriver{paths: []string{"a\nb"}}, []Op{OpFields}},
		"more IDs than volumes":    {fixedDriver{ids: []string{"a", "b"}}, []Op{OpVolumeIDs}},
	} {
		t.Run(name, func(t *testing.T) {
			got := codes(t, tc.answer)
			for _, op := range tc.refused {
				if got[op] != Internal {
					t.Errorf("%s: %v, want Internal", op, got[op])
				}
				delete(got, op)
			}
			for op, code := range got {
				if code != OK {
					t.Errorf("%s: %v, want OK", op, code)
				}
			}
		})
	}
}

// An error is not hidden by the answer next to it, except Uninitialized, which has a VM.
func TestErrorsOfCheckedDrivers(t *testing.T) {
	broken := errors.New("broken")
	l := fixedDriver{vm: VM{ProviderID: "a b"}, fails: broken}
	if _, err := Checked(l).GetMachineStatus(t.Context(), GetMachineStatusRequest{}); !errors.Is(err, broken) {
		t.Errorf("%v, want the driver's error", err)
	}
	l.fails = Errorf(OpStatus, Uninitialized, "not set up")
	if _, err := Checked(l).GetMachineStatus(t.Context(), GetMachineStatusRequest{}); CodeOf(err) != Internal {
		t.Errorf("%v, want Internal", err)
	}
	l.vm.ProviderID = "cloud:///i-1"
	if resp, err := Checked(l).GetMachineStatus(t.Context(), GetMachineStatusRequest{}); CodeOf(err) != Uninitialized ||
		resp.ProviderID == "" {
		t.Errorf("%v with %+v, want Uninitialized with the VM", err, resp)
	}
}
