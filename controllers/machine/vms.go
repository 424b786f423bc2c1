package machine

import (
	"context"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machine/cloud"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machine/credentials"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machine/lifecycle"
	"github.com/machine-controller-fleet/machine-controller-fleet/driver"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/deletion"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/deletion/receipt"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/drainer"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/pacing"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/telemetry"
)

// vms call the cloud for the VMs of machines, and record what it answers.
type vms struct {
	cloud     *cloud.Client
	clock     clock.PassiveClock
	own       clock.PassiveClock // of the process
	memory    *machineMemory
	nodes     *nodes
	classes   *classes
	parents   *parents
	drains    *drainer.Drainer
	events    events.EventRecorder
	deletions *deletion.Recorder
	asked     *pacing.Rates[string] // calls that ask for the VMs of unreachable Nodes, by namespace
}

// call sends one call of the driver and records the answer in the world. An error of the cloud is
// recorded there, too, as a Failure, and so is an open circuit breaker of the account. Errors,
// which end the pass: cloud.ErrCrowded, the end of ctx or of the ownership.
func (v *vms) call(ctx context.Context, p *pass, verdict lifecycle.Verdict) error {
	call := cloud.Call{
		Op: opOf(verdict.Do), SecretVersions: p.world.Secret.Versions,
		Target: driver.Target{Machine: p.world.Machine, Class: p.world.Class.Class, Secret: p.credentials, Adopt: lifecycle.MayAdopt(p.world)},
	}
	failure, err := v.cloud.Do(ctx, call, func(ctx context.Context, target driver.Target) error {
		return v.send(ctx, p, target, verdict)
	})
	switch {
	case err != nil:
		return fmt.Errorf("%s: %w", verdict.Do, err)
	case failure == nil:
		return nil
	case failure.Held:
		p.held = true
	default:
		klog.FromContext(ctx).V(2).Info("Driver call failed", "action", verdict.Do, "code", failure.Code, "message", failure.Message)
		if p.world.VM.Invalid != "" { // the answer, as far as it is valid, is a fact about the VM
			return nil
		}
	}
	p.world.Failure = &lifecycle.Failure{
		Code: failure.Code, Op: call.Op, Message: failure.Message, Held: failure.Held, RetryAfter: failure.RetryAfter,
	}
	return nil
}

// opOf returns the operation of an action.
func opOf(action lifecycle.Action) driver.Op {
	switch action { //nolint:exhaustive // the others are no actions of the driver
	case lifecycle.CreateVM:
		return driver.OpCreate
	case lifecycle.InitializeVM:
		return driver.OpInitialize
	case lifecycle.DeleteVM:
		return driver.OpDelete
	}
	return driver.OpStatus
}

// send sends one call of the driver. Errors: those of the driver, but for those that answer what it
// was asked.
func (v *vms) send(ctx context.Context, p *pass, target driver.Target, verdict lifecycle.Verdict) (err error) {
	switch verdict.Do { //nolint:exhaustive // act passes only actions of the driver
	case lifecycle.FindVM:
		err = v.find(ctx, p, target)
	case lifecycle.CreateVM:
		err = v.create(ctx, p, target)
	case lifecycle.InitializeVM:
		err = v.initialize(ctx, p, target)
	case lifecycle.DeleteVM:
		err = v.delete(ctx, p, target, verdict.Why)
	}
	if p.world.VM.State == lifecycle.VMAbsent && p.world.Node.State == lifecycle.NodeAbsent {
		p.world.Node = lifecycle.NodeFact{} // unknown again: the VM may have joined before it was deleted
	}
	return err
}

func (v *vms) find(ctx context.Context, p *pass, target driver.Target) error {
	resp, err := p.driver.GetMachineStatus(ctx, driver.GetMachineStatusRequest{Target: target})
	fact := lifecycle.VMFact{State: lifecycle.VMPresent, VM: resp.VM, Left: resp.Left, Adopting: target.Adopt}
	switch code := driver.CodeOf(err); {
	case code == driver.Uninitialized:
		fact.State = lifecycle.VMUninitialized
	case code == driver.NotFound:
		fact = lifecycle.VMFact{State: lifecycle.VMAbsent, Left: resp.Left, Adopting: target.Adopt}
	case code == driver.Unimplemented:
		fact = lifecycle.HiddenVM(p.world.Machine)
	case driver.IsInvalidAnswer(err):
		return v.noteInvalid(p, resp.VM, "", err)
	case err != nil:
		return err
	}
	v.note(p, fact)
	return nil
}

func (v *vms) create(ctx context.Context, p *pass, target driver.Target) error {
	if isFirstAttempt(p.world.Machine) {
		klog.FromContext(ctx).Info("Requesting VM", "provider", target.Class.Provider, telemetry.KeyMachineClass, klog.KObj(target.Class))
	}
	start := v.clock.Now()
	resp, err := p.driver.CreateMachine(ctx, driver.CreateMachineRequest{
		Target:   target,
		UserData: credentials.FillUserData(p.world.Secret.UserData, p.placeholders()),
	})
	switch {
	case driver.IsInvalidAnswer(err):
		return v.noteInvalid(p, resp.VM, resp.LastKnownState, err)
	case err != nil:
		p.world.VM.LastKnownState = resp.LastKnownState
		return err
	}
	v.memory.measure(p, func(t *timing) { t.hasCreated, t.createCall = true, v.clock.Since(start) })
	v.note(p, lifecycle.VMFact{State: lifecycle.VMUninitialized, VM: resp.VM, LastKnownState: resp.LastKnownState})
	return nil
}

// isFirstAttempt reports whether no creation of the machine's VM has failed yet: attempts are
// repeated for as long as a cloud refuses them, and only the first one is a step of the machine's
// life.
func isFirstAttempt(m *v1alpha1.Machine) bool { return m.Status.CurrentStatus.Phase == "" }

func (v *vms) initialize(ctx context.Context, p *pass, target driver.Target) error {
	start := v.clock.Now()
	resp, err := p.driver.InitializeMachine(ctx, driver.InitializeMachineRequest{Target: target})
	if err != nil && driver.CodeOf(err) != driver.Unimplemented {
		return err
	}
	if err == nil {
		v.memory.measure(p, func(t *timing) { t.initializeCall = v.clock.Since(start) })
	}
	p.world.VM.Addresses = slices.Concat(p.world.VM.Addresses, resp.Addresses)
	p.world.VM.State = lifecycle.VMPresent
	return nil
}

func (v *vms) delete(ctx context.Context, p *pass, target driver.Target, why receipt.Reason) error {
	machine := p.world.Machine.UID
	v.memory.measure(p, func(t *timing) {
		if t.vmRequested.IsZero() {
			t.vmRequested = v.clock.Now()
		}
	})
	logged := v.memory.of(machine).vmDeleted // before the call: the machine may be gone, and forgotten, after it
	var resp driver.DeleteMachineResponse
	var err error
	outcome, _ := v.deletions.Delete(ctx, v.events, v.deletionOf(p, why), func(ctx context.Context) error {
		resp, err = p.driver.DeleteMachine(ctx, driver.DeleteMachineRequest{Target: target})
		if p.world.VM.State == lifecycle.VMAbsent || err == nil && resp.Left {
			return deletion.ErrNothing // of a VM: what a failed create has left may be deleted
		}
		return err
	})
	v.memory.change(machine, func(is *remembered) { is.deletion = outcome })
	switch {
	case err != nil && driver.CodeOf(err) != driver.NotFound:
		v.memory.change(machine, func(is *remembered) { is.ending = ending{} })
		p.world.VM = lifecycle.VMFact{LastKnownState: resp.LastKnownState}
		return err
	case err != nil || resp.Gone:
		v.memory.change(machine, func(is *remembered) { is.ending, is.vmDeleted = ending{}, true })
		v.memory.measure(p, func(t *timing) { t.vmGone = v.clock.Now() })
		if !logged && outcome == receipt.Accepted {
			klog.FromContext(ctx).Info("Deleted VM", telemetry.KeyProviderID, p.world.Machine.Spec.ProviderID)
		}
		p.world.VM = lifecycle.VMFact{State: lifecycle.VMAbsent, Gone: true, Left: resp.Left, Adopting: target.Adopt}
	default:
		p.world.VM = v.noteEnding(machine, target.Adopt)
	}
	// Else the cloud has returned the whole ID.
	if id := p.world.Machine.Spec.ProviderID; err == nil && resp.Owned && !driver.SameVM(id, p.world.Proven) {
		v.prove(p, id)
	}
	p.world.VM.LastKnownState = resp.LastKnownState
	v.drains.VMDeleted(machine)
	return nil
}

// prove records that the cloud has, or had, a VM of this provider ID with the machine's UID.
func (v *vms) prove(p *pass, providerID string) {
	v.memory.change(p.world.Machine.UID, func(is *remembered) { is.proven = providerID })
	p.world.Proven = providerID
}

// noteInvalid records a VM that the driver has described only in part, and returns the error for
// the rest.
func (v *vms) noteInvalid(p *pass, vm driver.VM, lastKnownState string, err error) error {
	fact := lifecycle.VMFact{State: lifecycle.VMUninitialized, VM: vm}
	if vm.ProviderID == "" {
		fact = lifecycle.HiddenVM(p.world.Machine)
	}
	fact.LastKnownState, fact.Invalid = lastKnownState, driver.MessageOf(err)
	v.note(p, fact)
	return err
}

// note records the VM in the world, and the Node that has its name. A VM that the driver has found
// or created has the machine's UID, so its provider ID is remembered as proven.
func (v *vms) note(p *pass, fact lifecycle.VMFact) {
	p.world.VM = fact
	if fact.State == lifecycle.VMPresent || fact.State == lifecycle.VMUninitialized {
		v.prove(p, fact.ProviderID)
	}
	if fact.NodeName != "" {
		v.nodes.observe(p, fact.NodeName)
	}
}

// deletionOf returns the deletion of the machine's VM. Its root has an Event of that only if no
// other Event on it names the machine.
func (v *vms) deletionOf(p *pass, why receipt.Reason) deletion.Deletion {
	m := p.world.Machine
	d := deletion.Deletion{
		Object: receipt.Object{
			Kind: receipt.VM, Namespace: m.Namespace, ProviderID: m.Spec.ProviderID, Machine: m.Name, MachineUID: m.UID, Node: lifecycle.NodeName(m),
		},
		Reason: why, About: []runtime.Object{m}, Recorded: v.memory.of(m.UID).deletion,
	}
	if why.Rule == receipt.MachineDeleted {
		d.About = v.parents.withRoot(m)
	}
	return d
}
