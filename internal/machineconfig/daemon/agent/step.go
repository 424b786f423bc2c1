package agent

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/fleet/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/bounded"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/machineconfig/daemon/desired"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/machineconfig/daemon/journal"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/machineconfig/daemon/lifecycle"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/machineconfig/daemon/transaction"
)

// step observes, decides, reports and acts, once. An error of a step is kept as its failure, and it
// is tried again later.
func (a *Agent) step(ctx context.Context) (lifecycle.Verdict, error) {
	w, err := a.observe(ctx)
	if err != nil {
		a.fail(lifecycle.Rest, err)
		return lifecycle.Verdict{Do: lifecycle.Rest}, err
	}
	a.succeeded(lifecycle.Rest)
	v := lifecycle.Decide(w)
	if !a.report(ctx, v.Report) && (v.After == 0 || v.After > firstRetry) {
		v.After = firstRetry
	}
	if v.Do == lifecycle.Rest {
		return v, nil
	}
	if err := a.do(ctx, v); err != nil {
		a.fail(v.Do, err)
		v.Report.State, v.Report.Reason = v1alpha1.StateDegraded, a.failed
		a.report(ctx, v.Report)
		if errors.Is(err, ErrRebootNeeded) {
			return v, err // its receiver ends
		}
		a.log.Error(err, "Step failed; retrying", "step", string(v.Do), "config", w.Desired)
		return v, err
	}
	a.succeeded(v.Do)
	return v, nil
}

// report reports whether the Node has a report now. What is applied does not depend on it: the next
// step reports again. A decision without the Node is not reported, also when it was read meanwhile:
// it would remove the request for a drain that the Node has.
func (a *Agent) report(ctx context.Context, r lifecycle.Report) bool {
	if !a.isKnown {
		return true // when the Node was read the next step follows
	}
	err := a.source.Report(ctx, r)
	if err != nil {
		a.log.Error(err, "Failed to report on the Node; retrying")
	}
	return err == nil
}

// succeeded forgets the failure of a step when it succeeds. The end of a transaction, and another
// target, are the success of all.
func (a *Agent) succeeded(step lifecycle.Do) {
	if step == a.failedStep || step == lifecycle.Finish {
		a.failed, a.failures = "", 0
	}
}

// fail keeps the error of a step until it is tried again. Rest stands for observing.
func (a *Agent) fail(step lifecycle.Do, err error) {
	a.failedStep = step
	delay := min(firstRetry<<min(a.failures, 10), lastRetry)
	delay -= time.Duration(rand.Int64N(int64(delay / 4))) //nolint:gosec // jitter
	a.failures++
	a.failed, a.retry = bounded.Text(err.Error(), maxFailure), a.cfg.Clock.Now().Add(delay)
}

// observe gathers the World.
func (a *Agent) observe(ctx context.Context) (lifecycle.World, error) {
	node, now := a.source.Node(), a.cfg.Clock.Now()
	a.isKnown = node.IsKnown
	bootID, err := a.cfg.BootID()
	if err != nil {
		return lifecycle.World{}, fmt.Errorf("read the boot ID: %w", err)
	}
	if node.Desired != a.targetName { // another target is tried at once
		a.targetName, a.target, a.missing, a.drainSince = node.Desired, nil, "", time.Time{}
		a.failed, a.failures = "", 0
	}
	manifest := a.store.Manifest()
	w := lifecycle.World{
		Now: now, Desired: node.Desired, Drain: node.Drain, Drained: node.Drained, Current: manifest.Config, Failure: manifest.Failure,
		BootID: bootID, HealthWithin: a.cfg.HealthWithin, Retry: a.retry, Failed: a.failed, RebootSince: a.rebootSince,
		Repairs: a.repairs, RepairsDrift: a.cfg.RepairsDrift, DrainsNode: a.source.DrainsNode(),
	}
	if j := a.store.Journal(); j != nil {
		w.Open = &lifecycle.Open{
			From: j.From.Config, Config: j.To.Config, NeedsReboot: j.Actions.Reboot,
			IsBooted: j.Actions.Reboot && bootID != j.BootID, IsActedOn: a.isActedOn, Failed: a.actFailed, Since: a.openSince,
		}
		if (w.Open.IsBooted || a.isActedOn && !w.Open.NeedsReboot) && a.cfg.Unhealthy != nil {
			w.Unhealthy = a.cfg.Unhealthy(ctx)
		}
	}
	if w.Open != nil || now.Sub(a.driftChecked) >= a.cfg.DriftInterval {
		if a.drift, err = a.store.Drift(); err != nil {
			return lifecycle.World{}, fmt.Errorf("compare files with the configuration: %w", err)
		}
		a.driftChecked = now
	}
	w.Drift = a.drift
	w.Target = lifecycle.Target{Missing: a.missing, DrainSince: a.drainSince}
	if a.target != nil {
		w.Target.IsKnown, w.Target.Refused = true, a.target.refused
		w.Target.Digest, w.Target.NeedsDrain = digestOf(a.target.config), a.target.actions.Reboot
		if a.drainSince.IsZero() && w.Target.NeedsDrain {
			a.drainSince = now
			w.Target.DrainSince = now
		}
	}
	return w, nil
}

// do carries out a verdict.
func (a *Agent) do(ctx context.Context, v lifecycle.Verdict) error {
	switch v.Do {
	case lifecycle.Rest:
		return nil
	case lifecycle.Fetch:
		return a.fetch(ctx)
	case lifecycle.Apply:
		return a.apply()
	case lifecycle.Repair:
		return a.repair()
	case lifecycle.Act:
		j := a.store.Journal()
		err := a.callHooks(ctx, j.Claims)
		if err == nil {
			err = a.act(ctx, j.Actions)
		}
		a.isActedOn = true
		if err != nil {
			a.actFailed = bounded.Text(err.Error(), maxFailure)
			a.log.Error(err, "Failed to finish a change; undoing it", "config", j.To.Config)
		}
		return nil
	case lifecycle.Reboot:
		a.log.Info("Rebooting", "config", a.store.Manifest().Config)
		if err := a.reboot(ctx); err != nil {
			return err
		}
		a.rebootSince = a.cfg.Clock.Now()
		return nil
	case lifecycle.Finish:
		config := a.store.Manifest().Config
		if err := a.store.Finish(); err != nil {
			return fmt.Errorf("finish %s: %w", config, err)
		}
		a.log.Info("Configuration is applied", "config", config)
		a.begin()
		return nil
	case lifecycle.Undo:
		return a.undo(ctx, v.Reason)
	}
	return fmt.Errorf("unknown step %q", v.Do)
}

// begin forgets what belongs to the last transaction.
func (a *Agent) begin() {
	a.isActedOn, a.actFailed, a.openSince, a.rebootSince = false, "", a.cfg.Clock.Now(), time.Time{}
	a.target, a.driftChecked = nil, time.Time{}
}

// fetch reads and plans the target. A configuration that is not valid is refused.
func (a *Agent) fetch(ctx context.Context) error {
	config, err := a.source.Fetch(ctx, a.targetName)
	if invalid, ok := errors.AsType[*InvalidError](err); ok {
		a.target, a.missing = &planned{config: desired.Config{Name: a.targetName}, refused: invalid.refused()}, ""
		return nil
	}
	if err != nil {
		a.missing = bounded.Text(err.Error(), maxFailure)
		return fmt.Errorf("read %s: %w", a.targetName, err)
	}
	a.missing = ""
	p, err := a.plan(config)
	if err != nil {
		return err
	}
	a.target = &p
	return nil
}

// apply applies the target. It is planned again: the machine may have changed while its Node was
// drained.
func (a *Agent) apply() error {
	before := a.target
	p, err := a.plan(before.config)
	if err != nil {
		return err
	}
	if len(p.refused) > 0 || p.actions.Reboot && !before.actions.Reboot {
		a.target = &p
		return nil // decide again
	}
	return a.commit(p)
}

// repair applies the current configuration again.
func (a *Agent) repair() error {
	manifest := a.store.Manifest()
	content, err := a.store.Object(manifest.ConfigDigest)
	if err != nil {
		return fmt.Errorf("read the copy of %s: %w", manifest.Config, err)
	}
	config, err := desired.Parse(content)
	if err != nil {
		return fmt.Errorf("read the copy of %s: %w", manifest.Config, err)
	}
	config.Name = manifest.Config
	p, err := a.plan(config)
	if err != nil {
		return err
	}
	if len(p.refused) > 0 {
		return fmt.Errorf("repair: %s: %s", p.refused[0].Field, p.refused[0].Message)
	}
	a.log.Info("Repairing files that differ from the configuration", "config", config.Name, "files", len(p.plan.Steps))
	a.repairs = append(a.repairs, a.cfg.Clock.Now())
	// The files have the content with which the machine has booted, or was restarted.
	p.actions.Reboot = false
	return a.commit(p)
}

// commit carries out a plan.
func (a *Agent) commit(p planned) error {
	bootID, err := a.cfg.BootID()
	if err != nil {
		return fmt.Errorf("read the boot ID: %w", err)
	}
	a.log.Info("Applying a configuration", "config", p.config.Name, "files", len(p.plan.Steps), "reboots", p.actions.Reboot)
	err = a.store.Apply(transaction.Change{
		ID: a.cfg.NewID(), BootID: bootID, Config: p.config.Name, Content: p.config.Content,
		Plan: p.plan, Claims: p.claims, Actions: p.actions, Contents: p.tree.Contents,
	})
	if err == nil {
		a.begin()
		return nil
	}
	a.target = nil
	if next, recoverErr := a.store.Recover(); recoverErr != nil {
		return fmt.Errorf("apply %s: %w; its undo: %w", p.config.Name, err, recoverErr)
	} else if next == journal.Continue {
		a.begin()
		return nil // the commit was reported as failed, and is there
	}
	return fmt.Errorf("apply %s: %w", p.config.Name, err)
}

// undo undoes the open transaction, and does what has to be done after the change back.
func (a *Agent) undo(ctx context.Context, reason string) error {
	j := *a.store.Journal()
	bootID, err := a.cfg.BootID()
	if err != nil {
		return fmt.Errorf("read the boot ID: %w", err)
	}
	a.log.Info("Undoing a configuration", "config", j.To.Config, "message", reason)
	if err := a.callHooks(ctx, reversed(j.Claims)); err != nil {
		a.log.Error(err, "Failed to undo what a hook has applied")
	}
	if err := a.store.Undo(reason, bootID); err != nil {
		return fmt.Errorf("undo %s: %w", j.To.Config, err)
	}
	a.begin()
	if err := a.act(ctx, j.Actions); err != nil {
		return fmt.Errorf("undo %s: %w", j.To.Config, err)
	}
	if f := a.store.Manifest().Failure; f == nil || f.BootID == "" {
		return fmt.Errorf("%s was undone: %s", j.To.Config, reason) // back off before the next attempt
	}
	return nil
}
