package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"github.com/machine-controller-fleet/machine-controller-fleet/driver"
)

// providerIDPrefix is followed by the UID of the Machine for which a VM was created.
const providerIDPrefix = "folder:///"

// cloud is the driver. It has no state, as every driver should: a process can end at any moment.
type cloud struct{ folder string }

var (
	_ driver.Driver  = (*cloud)(nil)
	_ driver.Sweeper = (*cloud)(nil)
)

// vm contains what the cloud stores of a VM: the four tags, and what the user has requested.
type vm struct {
	Namespace      string    `json:"namespace"`
	Machine        string    `json:"machine"`
	UID            types.UID `json:"uid"`
	ControlCluster string    `json:"controlCluster,omitempty"`
	Size           string    `json:"size"`
	UserData       []byte    `json:"userData"`
	// Ended is true for a VM that has ended. The cloud remembers it, and a Machine gets no second VM.
	Ended bool `json:"ended,omitempty"`
}

// providerSpec is MachineClass.providerSpec.
type providerSpec struct {
	Size string `json:"size"`
}

// parseSpec rejects what cannot work, before anything is created.
func parseSpec(raw []byte) (spec providerSpec, err error) {
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&spec); err != nil {
		return spec, fmt.Errorf("providerSpec: expected an object with the field size: %w", err)
	}
	if spec.Size != "small" && spec.Size != "large" {
		return spec, fmt.Errorf("providerSpec.size: expected small or large, got %q", spec.Size)
	}
	return spec, nil
}

// GetUnknownFields returns the fields that parseSpec rejects.
func (*cloud) GetUnknownFields(_ context.Context, req driver.GetUnknownFieldsRequest) (driver.GetUnknownFieldsResponse, error) {
	resp, err := driver.UnknownFields(req.Class.ProviderSpec.Raw, providerSpec{})
	resp.Refused = len(resp.Fields) > 0
	return resp, err
}

// CreateMachine creates the VM. The name of its file is the Machine's UID, and the file system
// creates a file of a name once: that is the idempotency token.
func (c *cloud) CreateMachine(ctx context.Context, req driver.CreateMachineRequest) (driver.CreateMachineResponse, error) {
	m := req.Machine
	if err := check(ctx, driver.OpCreate, m.UID); err != nil {
		return driver.CreateMachineResponse{}, err
	}
	spec, err := parseSpec(req.Class.ProviderSpec.Raw)
	if err != nil {
		return driver.CreateMachineResponse{}, driver.Errorf(driver.OpCreate, driver.InvalidArgument, "%w", err)
	}
	err = c.write(vm{
		Namespace: m.Namespace, Machine: m.Name, UID: m.UID, ControlCluster: req.ControlCluster, Size: spec.Size, UserData: req.UserData,
	})
	if errors.Is(err, fs.ErrExist) {
		var found vm
		if found, _, err = c.read(m.UID); found.Ended {
			return driver.CreateMachineResponse{}, driver.Errorf(driver.OpCreate, driver.Aborted,
				"the VM of this Machine has ended; a Machine gets one VM in its life")
		}
	}
	if err != nil {
		return driver.CreateMachineResponse{}, unavailable(driver.OpCreate, err)
	}
	return driver.CreateMachineResponse{VM: describe(m.UID, m.Name)}, nil
}

// InitializeMachine has nothing to do.
func (*cloud) InitializeMachine(context.Context, driver.InitializeMachineRequest) (driver.InitializeMachineResponse, error) {
	return driver.InitializeMachineResponse{}, driver.Errorf(driver.OpInitialize, driver.Unimplemented, "a VM needs nothing after its create")
}

// DeleteMachine removes the VM with the Machine's UID. What the provider ID names proves nothing,
// and is only reported.
func (c *cloud) DeleteMachine(ctx context.Context, req driver.DeleteMachineRequest) (driver.DeleteMachineResponse, error) {
	if err := check(ctx, driver.OpDelete, req.Machine.UID); err != nil {
		return driver.DeleteMachineResponse{}, err
	}
	left, err := c.foreign(driver.OpDelete, req.Target)
	if err != nil {
		return driver.DeleteMachineResponse{}, err
	}
	switch err := os.Remove(c.path(req.Machine.UID)); {
	case err == nil:
		owned := req.Machine.Spec.ProviderID == providerIDPrefix+string(req.Machine.UID)
		return driver.DeleteMachineResponse{Gone: true, Left: left, Owned: owned}, nil
	case errors.Is(err, fs.ErrNotExist) && c.answers():
		return driver.DeleteMachineResponse{Gone: true, Left: left}, nil
	default:
		return driver.DeleteMachineResponse{}, unavailable(driver.OpDelete, err)
	}
}

// GetMachineStatus looks for the VM with the Machine's UID.
func (c *cloud) GetMachineStatus(ctx context.Context, req driver.GetMachineStatusRequest) (driver.GetMachineStatusResponse, error) {
	if err := check(ctx, driver.OpStatus, req.Machine.UID); err != nil {
		return driver.GetMachineStatusResponse{}, err
	}
	left, err := c.foreign(driver.OpStatus, req.Target)
	if err != nil {
		return driver.GetMachineStatusResponse{}, err
	}
	found, exists, err := c.read(req.Machine.UID)
	switch {
	case err != nil:
		return driver.GetMachineStatusResponse{}, unavailable(driver.OpStatus, err)
	case !exists || found.Ended:
		return driver.GetMachineStatusResponse{Left: left},
			driver.Errorf(driver.OpStatus, driver.NotFound, "there is no VM with UID %s", req.Machine.UID)
	}
	return driver.GetMachineStatusResponse{VM: describe(found.UID, found.Machine), Left: left}, nil
}

// ListMachines returns the VMs of the class' namespace.
func (c *cloud) ListMachines(ctx context.Context, req driver.ListMachinesRequest) (driver.ListMachinesResponse, error) {
	machines := map[string]string{}
	err := c.each(ctx, driver.OpList, "", func(found vm) (more bool) {
		if found.Namespace == req.Class.Namespace {
			machines[providerIDPrefix+string(found.UID)] = found.Machine
		}
		return true
	})
	if err != nil {
		return driver.ListMachinesResponse{}, err
	}
	return driver.ListMachinesResponse{Machines: machines}, nil
}

// GetVolumeIDs returns no volumes.
func (*cloud) GetVolumeIDs(context.Context, driver.GetVolumeIDsRequest) (driver.GetVolumeIDsResponse, error) {
	return driver.GetVolumeIDsResponse{}, nil
}

// check returns the error of a call that cannot be sent.
func check(ctx context.Context, op driver.Op, uid types.UID) error {
	switch {
	case errors.Is(ctx.Err(), context.Canceled):
		return driver.Errorf(op, driver.Canceled, "%w", context.Cause(ctx))
	case ctx.Err() != nil:
		return driver.Errorf(op, driver.DeadlineExceeded, "%w", context.Cause(ctx))
	case uid == "" || uid != types.UID(filepath.Base(string(uid))):
		return driver.Errorf(op, driver.InvalidArgument, "expected the UID of a Machine, got %q", uid)
	}
	return nil
}

// unavailable returns the error for a cloud that did not answer: whether there is a VM is then not
// known.
func unavailable(op driver.Op, err error) error {
	return driver.Errorf(op, driver.Unavailable, "the folder cannot be used: %w", err)
}

func describe(uid types.UID, machine string) driver.VM {
	return driver.VM{ProviderID: providerIDPrefix + string(uid), NodeName: machine}
}

// path returns the file of a VM.
func (c *cloud) path(uid types.UID) string { return filepath.Join(c.folder, string(uid)) }

// answers reports whether the folder is there: without it the absence of a file proves nothing.
func (c *cloud) answers() bool {
	_, err := os.Stat(c.folder)
	return err == nil
}

// foreign reports whether the provider ID of a Machine names a VM that exists and is not the
// Machine's.
func (c *cloud) foreign(op driver.Op, t driver.Target) (bool, error) {
	uid, ours := strings.CutPrefix(t.Machine.Spec.ProviderID, providerIDPrefix)
	if !ours || uid == string(t.Machine.UID) || uid == "" || uid != filepath.Base(uid) {
		return false, nil
	}
	found, exists, err := c.read(types.UID(uid))
	if err != nil {
		return false, unavailable(op, err)
	}
	return exists && !found.Ended, nil
}

// read returns a VM; exists reports whether there is one.
func (c *cloud) read(uid types.UID) (found vm, exists bool, err error) {
	raw, err := os.ReadFile(c.path(uid))
	if errors.Is(err, fs.ErrNotExist) && c.answers() {
		return vm{}, false, nil
	}
	if err != nil {
		return vm{}, false, err
	}
	return found, true, json.Unmarshal(raw, &found)
}

// write creates a VM. Errors: fs.ErrExist when it exists, and those of the file system. A link
// appears at once, with all of its content.
func (c *cloud) write(created vm) error {
	raw, err := json.Marshal(created)
	if err != nil {
		return err
	}
	temporary, err := os.CreateTemp(c.folder, ".new-")
	if err != nil {
		return err
	}
	_, err = temporary.Write(raw)
	if err = errors.Join(err, temporary.Close()); err == nil {
		err = os.Link(temporary.Name(), c.path(created.UID))
	}
	return errors.Join(err, os.Remove(temporary.Name()))
}
