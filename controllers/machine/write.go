package machine

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	machineclient "github.com/machine-controller-fleet/machine-controller-fleet/client/clientset/versioned/typed/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machine/lifecycle"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/deletion"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/drainer/drain"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/machinefacts"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/objectcache"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/pacing"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/patch"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/telemetry"
)

// writer writes Machines and emits their Events.
type writer struct {
	client    machineclient.MachinesGetter
	latest    *patch.Committer[*v1alpha1.Machine]
	view      *objectcache.View
	events    events.EventRecorder
	deletions *deletion.Recorder
	clock     clock.PassiveClock
	own       clock.PassiveClock // of the process
	limits    lifecycle.Limits
	writes    *pacing.Rates[types.UID]
	memory    *machineMemory
	metrics   *lifeMetrics
	parents   *parents
	outages   *outages
}

// save writes the machine of the verdict, and then emits the Events of the verdict: none is emitted
// for a state that was not written.
func (w *writer) save(ctx context.Context, p *pass, verdict lifecycle.Verdict) error {
	before := p.world.Machine
	if verdict.Machine != nil {
		measured := w.memory.of(before.UID).timing // a machine that is gone after the write is forgotten at once
		written, err := w.latest.Commit(ctx, before, verdict.Machine)
		p.world.Machine = written
		if followsNode(before, p.world.Drain) && written.ResourceVersion != before.ResourceVersion {
			w.writes.Count(before.UID, w.clock.Now())
		}
		if apierrors.IsNotFound(err) {
			return nil // the machine is gone: there is no object for the Events
		}
		if err != nil {
			return err
		}
		w.metrics.written(ctx, p, before, measured, verdict.Events)
	}
	w.report(ctx, before, p.world.Machine, verdict.Events...)
	return nil
}

// report emits Events on a machine, in the stage that it was in before a write or, if it was in
// none, in the one that the write begins.
func (w *writer) report(ctx context.Context, before, m *v1alpha1.Machine, events ...lifecycle.Event) {
	stage, since := lifecycle.StageOf(before)
	if stage == "" {
		stage, since = lifecycle.StageOf(m)
	}
	ctx = telemetry.InStage(ctx, tracedStage(m, stage, since))
	for _, event := range events {
		telemetry.Emit(ctx, w.events, m, event.Reason, event.Message)
	}
}

// delete deletes the Machine object, and emits why. Its finalizer keeps the object, which is read
// with its deletion timestamp, so that this pass continues with the deletion of VM and Node.
func (w *writer) delete(ctx context.Context, p *pass, verdict lifecycle.Verdict) error {
	m := p.world.Machine
	of := deletion.OfMachine(m, verdict.Why)
	of.About = w.parents.withRoot(m)
	_, err := w.deletions.Delete(ctx, w.events, of, func(ctx context.Context) error {
		return w.client.Machines(m.Namespace).Delete(ctx, m.Name, metav1.DeleteOptions{
			Preconditions: &metav1.Preconditions{UID: &m.UID, ResourceVersion: &m.ResourceVersion},
		})
	})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete machine %s/%s: %w", m.Namespace, m.Name, err)
	}
	if err == nil {
		w.report(ctx, m, m, verdict.Events...)
	}
	fresh, err := w.client.Machines(m.Namespace).Get(ctx, m.Name, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("read machine %s/%s after its deletion: %w", m.Namespace, m.Name, err)
	}
	w.latest.Wrote(fresh)
	p.world.Machine = fresh
	return nil
}

// hasEnded reports whether a machine does not exist any more: the cache does not show it, or a pass
// of this process has removed its last finalizer. No pass has anything to do for it.
func (w *writer) hasEnded(key types.NamespacedName) bool {
	m, known := w.view.Machines.Get(key)
	if known {
		m = w.latest.Newest(m)
	}
	return !known || m.DeletionTimestamp != nil && len(m.Finalizers) == 0
}

// delay returns for how long a write of the machine must wait; 0 means not at all. The status of a
// machine with a VM follows from its Node, which the kubelet can change many times per second:
// without a limit, each change would become a write to the control cluster. A verdict that has to
// wait is dropped, and the next pass observes anew.
func (w *writer) delay(p *pass, verdict lifecycle.Verdict) time.Duration {
	m := p.world.Machine
	if verdict.Machine == nil || !followsNode(m, p.world.Drain) || machinefacts.Same(m, verdict.Machine) {
		return 0
	}
	return w.writes.Wait(m.UID, p.world.Now)
}

// followsNode reports whether the status of a machine follows from its Node and nothing else: the
// machine has a VM, which is neither being deleted, but for a drain that goes on, nor updated in
// place.
func followsNode(m *v1alpha1.Machine, is drain.Report) bool {
	switch m.Status.CurrentStatus.Phase { //nolint:exhaustive // in all others an action on the VM is due
	case v1alpha1.MachinePending, v1alpha1.MachineRunning, v1alpha1.MachineUnknown, v1alpha1.MachineFailed:
		return m.DeletionTimestamp == nil
	case v1alpha1.MachineTerminating:
		return is.State == drain.Draining
	}
	return false
}

// stage returns the stage that a machine is in, whose trace its passes are in.
func (w *writer) stage(key types.NamespacedName) telemetry.Stage {
	m, known := w.view.Machines.Get(key)
	if !known {
		return telemetry.Stage{}
	}
	m = w.latest.Newest(m)
	stage, since := lifecycle.StageOf(m)
	return tracedStage(m, stage, since)
}
