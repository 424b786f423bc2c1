package machine

import (
	"context"
	"fmt"
	"slices"

	"k8s.io/klog/v2"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machine/credentials"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machine/lifecycle"
	"github.com/machine-controller-fleet/machine-controller-fleet/driver"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/deletionlog"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/receipt"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/runner"
	"github.com/machine-controller-fleet/machine-controller-fleet/telemetry"
)

// callDriver makes one call of the driver and records the answer in the world. An error of the cloud is recorded there, too, as a
// Failure. Errors, which end the pass: errCrowded, the end of ctx or of the ownership.
func (c *Controller) callDriver(ctx context.Context, p *pass, verdict lifecycle.Verdict) error {
	action := verdict.Do
	used := credentialsOf(p.world.Class.Class)
	if !c.calls.begin(used) {
		return errCrowded
	}
	defer c.calls.end(used)
	call, cancel := context.WithTimeout(ctx, driverTimeout)
	defer cancel()
	target := driver.Target{Machine: p.world.Machine, Class: p.world.Class.Class, Secret: p.credentials, Adopt: lifecycle.MayAdopt(p.world)}
	if c.cfg.ControlCluster != nil {
		target.ControlCluster = c.cfg.ControlCluster()
	}
	var op driver.Op
	var err error
	switch action { //nolint:exhaustive // act passes only actions of the driver
	case lifecycle.FindVM:
		op, err = driver.OpStatus, c.findVM(call, p, target)
	case lifecycle.CreateVM:
		op, err = driver.OpCreate, c.createVM(call, p, target)
	case lifecycle.InitializeVM:
		op, err = driver.OpInitialize, c.initializeVM(call, p, target)
	case lifecycle.DeleteVM:
		op, err = driver.OpDelete, c.deleteVM(call, p, target, verdict.Why)
	}
	if p.world.VM.State == lifecycle.VMAbsent && p.world.Node.State == lifecycle.NodeAbsent {
		p.world.Node = lifecycle.NodeFact{} // unknown again: the VM may have joined before it was deleted
	}
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		return fmt.Errorf("%s: %w", action, ctx.Err())
	}
	if runner.NotOurs(err) {
		return fmt.Errorf("%s: %w", action, err)
	}
	klog.FromContext(ctx).V(2).Info("Driver call failed", "action", action, "code", driver.CodeOf(err), "message", driver.MessageOf(err))
	p.world.Failure = &lifecycle.Failure{Code: driver.CodeOf(err), Op: op, RetryAfter: driver.RetryAfterOf(err), Message: driver.MessageOf(err)}
	return nil
}

func (c *Controller) findVM(ctx context.Context, p *pass, target driver.Target) error {
	resp, err := p.driver.GetMachineStatus(ctx, driver.GetMachineStatusRequest{Target: target})
	fact := lifecycle.VMFact{State: lifecycle.VMPresent, VM: resp.VM, Left: resp.Left, Adopting: target.Adopt}
	switch code := driver.CodeOf(err); {
	case code == driver.Uninitialized:
		fact.State = lifecycle.VMUninitialized
	case code == driver.NotFound:
		fact = lifecycle.VMFact{State: lifecycle.VMAbsent, Left: resp.Left, Adopting: target.Adopt}
	case code == driver.Unimplemented:
		m := p.world.Machine
		fact = lifecycle.VMFact{State: lifecycle.VMHidden, VM: driver.VM{ProviderID: m.Spec.ProviderID, NodeName: lifecycle.NodeName(m)}}
	case err != nil:
		return err
	}
	return c.noteVM(p, fact)
}

func (c *Controller) createVM(ctx context.Context, p *pass, target driver.Target) error {
	if isFirstAttempt(p.world.Machine) {
		klog.FromContext(ctx).Info("Requesting VM", "provider", target.Class.Provider, telemetry.KeyMachineClass, klog.KObj(target.Class))
	}
	start := c.cfg.Clock.Now()
	resp, err := p.driver.CreateMachine(ctx, driver.CreateMachineRequest{
		Target:   target,
		UserData: credentials.FillUserData(p.world.Secret.UserData, p.placeholders()),
	})
	if err != nil {
		p.world.VM.LastKnownState = resp.LastKnownState
		return err
	}
	c.measure(p, func(t *timing) { t.hasCreated, t.createCall = true, c.cfg.Clock.Since(start) })
	return c.noteVM(p, lifecycle.VMFact{State: lifecycle.VMUninitialized, VM: resp.VM, LastKnownState: resp.LastKnownState})
}

// isFirstAttempt reports whether no creation of the machine's VM has failed yet: attempts are repeated for as long as a cloud refuses
// them, and only the first one is a step of the machine's life.
func isFirstAttempt(m *v1alpha1.Machine) bool { return m.Status.CurrentStatus.Phase == "" }

func (c *Controller) initializeVM(ctx context.Context, p *pass, target driver.Target) error {
	start := c.cfg.Clock.Now()
	resp, err := p.driver.InitializeMachine(ctx, driver.InitializeMachineRequest{Target: target})
	if err != nil && driver.CodeOf(err) != driver.Unimplemented {
		return err
	}
	if err == nil {
		c.measure(p, func(t *timing) { t.initializeCall = c.cfg.Clock.Since(start) })
	}
	p.world.VM.Addresses = slices.Concat(p.world.VM.Addresses, resp.Addresses)
	p.world.VM.State = lifecycle.VMPresent
	return nil
}

func (c *Controller) deleteVM(ctx context.Context, p *pass, target driver.Target, why receipt.Reason) error {
	machine := p.world.Machine.UID
	c.measure(p, func(t *timing) {
		if t.vmRequested.IsZero() {
			t.vmRequested = c.cfg.Clock.Now()
		}
	})
	logged := c.memory.of(machine).vmDeleted // before the call: the machine may be gone, and forgotten, after it
	var resp driver.DeleteMachineResponse
	var err error
	outcome, _ := c.cfg.Deletions.Delete(ctx, c.cfg.Events, c.deletionOfVM(p, why), func(ctx context.Context) error {
		resp, err = p.driver.DeleteMachine(ctx, driver.DeleteMachineRequest{Target: target})
		if p.world.VM.State == lifecycle.VMAbsent || err == nil && resp.Left {
			return deletionlog.ErrNothing // of a VM: what a failed create has left may be deleted
		}
		return err
	})
	c.memory.change(machine, func(is *remembered) { is.deletion = outcome })
	switch {
	case err != nil && driver.CodeOf(err) != driver.NotFound:
		c.memory.change(machine, func(is *remembered) { is.ending = ending{} })
		p.world.VM = lifecycle.VMFact{LastKnownState: resp.LastKnownState}
		return err
	case err != nil || resp.Gone:
		c.memory.change(machine, func(is *remembered) { is.ending, is.vmDeleted = ending{}, true })
		c.measure(p, func(t *timing) { t.vmGone = c.cfg.Clock.Now() })
		if !logged && outcome == receipt.Accepted {
			klog.FromContext(ctx).Info("Deleted VM", telemetry.KeyProviderID, p.world.Machine.Spec.ProviderID)
		}
		p.world.VM = lifecycle.VMFact{State: lifecycle.VMAbsent, Gone: true, Left: resp.Left, Adopting: target.Adopt}
	default:
		p.world.VM = c.noteEnding(machine, target.Adopt)
	}
	if err == nil && resp.Owned {
		c.prove(p, p.world.Machine.Spec.ProviderID)
	}
	p.world.VM.LastKnownState = resp.LastKnownState
	c.drains.VMDeleted(machine)
	return nil
}

// prove records that the cloud has, or had, a VM of this provider ID with the machine's UID.
func (c *Controller) prove(p *pass, providerID string) {
	c.memory.change(p.world.Machine.UID, func(is *remembered) { is.proven = providerID })
	p.world.Proven = providerID
}

// noteVM records the VM in the world, and the Node that has its name. A VM that the driver has found or created has the machine's
// UID, so its provider ID is remembered as proven.
func (c *Controller) noteVM(p *pass, fact lifecycle.VMFact) error {
	p.world.VM = fact
	if fact.State == lifecycle.VMPresent || fact.State == lifecycle.VMUninitialized {
		c.prove(p, fact.ProviderID)
	}
	if fact.NodeName == "" {
		return nil
	}
	c.observeNode(p, fact.NodeName)
	return nil
}
