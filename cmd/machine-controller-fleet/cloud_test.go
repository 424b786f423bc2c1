package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/driver"
)

const (
	bootTime = 8 * time.Second // of a VM, until it is a Node
	stopTime = 2 * time.Second // of a VM, from its deletion to its end
)

// cloud is a cloud in memory. It fulfills the contract of driver.Driver: a create finds the VM that carries the Machine's UID.
type cloud struct {
	*trial

	mu  sync.Mutex
	vms []*vm // that ever existed
}

// vm is a VM of the cloud.
type vm struct {
	driver.VM

	uid, namespace, machine string
	boots, ends             time.Time // ends is zero until it is deleted
	joined                  bool
}

func (v *vm) hasEnded(now time.Time) bool { return !v.ends.IsZero() && !now.Before(v.ends) }

// live returns the VMs that have not begun to end.
func (c *cloud) live() (vms []*vm) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, v := range c.vms {
		if v.ends.IsZero() {
			vms = append(vms, v)
		}
	}
	return vms
}

// driverOf is the driver of a process.
type driverOf struct {
	*cloud
	process *process
}

var _ driver.Driver = (*driverOf)(nil)

// call sends a call to the cloud, which carries it out, and returns its answer.
func (d *driverOf) call(ctx context.Context, op driver.Op, t driver.Target, do func() error) error {
	q := request{replica: d.process.replica, place: atCloud, kind: gets, method: string(op)}
	if t.Machine != nil {
		q.path = t.Machine.Namespace + "/" + t.Machine.Name
	}
	if op == driver.OpCreate || op == driver.OpDelete || op == driver.OpInitialize {
		q.kind = writes
		d.called(ctx, d.process, op, t)
	}
	unanswered := func(err error) error {
		if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
			return &driver.Error{Code: driver.DeadlineExceeded, Op: op, Err: err}
		}
		return &driver.Error{Code: driver.Unavailable, Op: op, Err: err}
	}
	d.process.awaitRunning()
	defer d.process.awaitRunning()
	if err := d.network.travel(ctx, d.process.dead, q, there); err != nil {
		return unanswered(err)
	}
	d.mu.Lock()
	failure := do()
	d.mu.Unlock()
	if d.network.loses(q) {
		return unanswered(errBroken)
	}
	if err := d.network.travel(ctx, d.process.dead, q, back); err != nil {
		return unanswered(err)
	}
	return failure
}

// find returns the VM of a machine that has not begun to end: that with its UID, regardless of its provider ID; d.mu is held.
func (d *driverOf) find(t driver.Target) *vm {
	for _, v := range d.vms {
		if v.ends.IsZero() && v.uid == string(t.Machine.UID) {
			return v
		}
	}
	return nil
}

// namesForeignVM reports whether the provider ID of a machine names a VM of another machine; d.mu is held.
func (d *driverOf) namesForeignVM(t driver.Target) bool {
	for _, v := range d.vms {
		if v.ends.IsZero() && v.ProviderID == t.Machine.Spec.ProviderID && v.uid != string(t.Machine.UID) {
			return true
		}
	}
	return false
}

// CreateMachine makes a VM, or finds the machine's.
func (d *driverOf) CreateMachine(ctx context.Context, req driver.CreateMachineRequest) (resp driver.CreateMachineResponse, err error) {
	err = d.call(ctx, driver.OpCreate, req.Target, func() error {
		v := d.find(req.Target)
		if v == nil {
			id := fmt.Sprintf("sim:///i-%04d", len(d.vms))
			v = &vm{
				VM: driver.VM{
					ProviderID: id, NodeName: req.Machine.Name,
					Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: fmt.Sprintf("10.0.0.%d", len(d.vms))}},
				},
				uid: string(req.Machine.UID), namespace: req.Machine.Namespace, machine: req.Machine.Name, boots: time.Now().Add(bootTime),
			}
			d.made(v)
			d.vms = append(d.vms, v)
		}
		resp.VM = v.VM
		return nil
	})
	return resp, err
}

// InitializeMachine is not implemented.
func (*driverOf) InitializeMachine(context.Context, driver.InitializeMachineRequest) (driver.InitializeMachineResponse, error) {
	return driver.InitializeMachineResponse{}, driver.Errorf(driver.OpInitialize, driver.Unimplemented, "nothing to do")
}

// DeleteMachine begins to terminate a VM.
func (d *driverOf) DeleteMachine(ctx context.Context, req driver.DeleteMachineRequest) (resp driver.DeleteMachineResponse, err error) {
	err = d.call(ctx, driver.OpDelete, req.Target, func() error {
		resp.Gone, resp.Left = true, d.namesForeignVM(req.Target)
		for _, v := range d.vms {
			if v.uid != string(req.Machine.UID) || v.hasEnded(time.Now()) {
				continue
			}
			if v.ends.IsZero() {
				d.ended(v)
				v.ends = time.Now().Add(stopTime)
			}
			resp.Gone = false
		}
		return nil
	})
	return resp, err
}

// GetMachineStatus looks for a machine's VM.
func (d *driverOf) GetMachineStatus(ctx context.Context, req driver.GetMachineStatusRequest) (resp driver.GetMachineStatusResponse, err error) {
	err = d.call(ctx, driver.OpStatus, req.Target, func() error {
		v := d.find(req.Target)
		resp.Left = d.namesForeignVM(req.Target)
		if v == nil {
			return driver.Errorf(driver.OpStatus, driver.NotFound, "no VM of machine %s", req.Machine.Name)
		}
		resp.VM = v.VM
		return nil
	})
	return resp, err
}

// ListMachines lists all VMs.
func (d *driverOf) ListMachines(ctx context.Context, _ driver.ListMachinesRequest) (resp driver.ListMachinesResponse, err error) {
	err = d.call(ctx, driver.OpList, driver.Target{}, func() error {
		resp.Machines = map[string]string{}
		for _, v := range d.vms {
			if v.ends.IsZero() {
				resp.Machines[v.ProviderID] = v.machine
			}
		}
		return nil
	})
	return resp, err
}

// GetUnknownFields knows all fields.
func (*driverOf) GetUnknownFields(context.Context, driver.GetUnknownFieldsRequest) (driver.GetUnknownFieldsResponse, error) {
	return driver.GetUnknownFieldsResponse{}, nil
}

// GetVolumeIDs is not implemented.
func (*driverOf) GetVolumeIDs(context.Context, driver.GetVolumeIDsRequest) (driver.GetVolumeIDsResponse, error) {
	return driver.GetVolumeIDsResponse{}, nil
}

// boot makes VMs join as Nodes when their boot time is over.
func (c *cloud) boot() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, v := range c.vms {
		if v.joined || !v.ends.IsZero() || time.Now().Before(v.boots) {
			continue
		}
		v.joined = true
		at := time.Now().UTC().Format(time.RFC3339)
		condition := func(kind, status string) any {
			return map[string]any{"type": kind, "status": status, "lastHeartbeatTime": at, "lastTransitionTime": at}
		}
		if c.target.Get("nodes", "", v.NodeName) != nil {
			continue // it was restored: the kubelet uses the Node of its name
		}
		c.put(c.target, "nodes", map[string]any{
			"apiVersion": "v1", "kind": "Node", "metadata": map[string]any{"name": v.NodeName},
			"spec": map[string]any{"providerID": v.ProviderID},
			"status": map[string]any{"conditions": []any{
				condition("Ready", "True"), condition("MemoryPressure", "False"), condition("DiskPressure", "False"), condition("PIDPressure", "False"),
			}},
		})
	}
}
