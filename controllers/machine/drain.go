package machine

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machine/inplace"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machine/lifecycle"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machine/nodesync"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machine/preserve"
	"github.com/machine-controller-fleet/machine-controller-fleet/driver"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/drainer"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/drainer/drain"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/objectcache"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/runner"
)

// drains drain the Nodes of machines.
type drains struct {
	*drainer.Drainer

	settings drain.Settings
	clock    clock.PassiveClock
	memory   *machineMemory
	nodes    *nodes
	wake     func(types.NamespacedName)
	warn     func(ctx context.Context, m *v1alpha1.Machine, message string) // of pods that could not be evicted
}

func newDrains(cfg Config, memory *machineMemory, nodes *nodes, wake func(types.NamespacedName)) (*drains, error) {
	d, err := drainer.New(drainer.Config{
		Clock: cfg.Clock, Settings: cfg.Limits.Drain, ReportAfter: reportAfter, Confirm: cfg.DrainConfirm,
		Backoff: func(before time.Duration, code driver.Code, requested time.Duration) (step, wait time.Duration) {
			return lifecycle.NextWait(before, code, requested, cfg.Limits)
		},
	})
	return &drains{Drainer: d, settings: cfg.Limits.Drain, clock: cfg.Clock, memory: memory, nodes: nodes, wake: wake}, err
}

// forDeletion continues the drain of the Node of a machine that is being deleted. It drops the
// drains of that Node for other aims.
func (s *drains) forDeletion(ctx context.Context, p *pass) error {
	m := p.world.Machine
	s.Drop(m.UID, drainer.ForPreservation)
	s.Drop(m.UID, drainer.ForUpdate)
	d := s.Of(m.UID, drainer.ForDeletion)
	v, isSame, err := s.continueDrain(ctx, p, d, drain.ForDeletion(m, s.settings).Under(p.world.Reach, p.world.Now))
	switch {
	case err != nil, !isSame:
		return err
	case v.Do != drain.Rest:
		p.world.Drain = d.Reported.Again()
	case v.State.Ended():
		p.world.Drain = d.End(v)
	default:
		d.Reported, p.world.Drain = d.Reported.Next(p.world.Now, v)
	}
	return nil
}

// forPreservation continues the drain of the Node of a failed machine that is preserved.
func (s *drains) forPreservation(ctx context.Context, p *pass) error {
	m := p.world.Machine
	d := s.Of(m.UID, drainer.ForPreservation)
	v, isSame, err := s.continueDrain(ctx, p, d, drain.ForPreservation(m, s.settings).Under(p.world.Reach, p.world.Now))
	if err != nil || !isSame {
		return err
	}
	p.world.PreservedDrain, d.Reported = lifecycle.PreservedDrainOf(p.world.Now, d.Reported, v)
	if v.State.Ended() {
		s.Drop(m.UID, drainer.ForPreservation)
	}
	return nil
}

// forUpdate continues the drain of a Node that will be updated in place.
func (s *drains) forUpdate(ctx context.Context, p *pass) error {
	m, node := p.world.Machine, p.world.Node.Node
	d := s.Of(m.UID, drainer.ForUpdate)
	v, isSame, err := s.continueDrain(ctx, p, d, drain.ForUpdate(m, inplace.SelectedAt(node), s.settings).Under(p.world.Reach, p.world.Now))
	if err != nil || !isSame {
		return err
	}
	d.Reported, p.world.UpdateDrain = d.Reported.NextForUpdate(p.world.Now, v)
	if v.State.Ended() {
		s.Drop(m.UID, drainer.ForUpdate)
	}
	return nil
}

// dropUnwanted drops the drains that no decision of this pass has continued.
func (s *drains) dropUnwanted(p *pass) {
	m := p.world.Machine.UID
	if p.world.PreservedDrain.State == preserve.DrainUnknown {
		s.Drop(m, drainer.ForPreservation)
	}
	if p.world.UpdateDrain.State == drain.Unknown {
		s.Drop(m, drainer.ForUpdate)
	}
}

// isAt reports whether the pass is still about this Node. The Node may be deleted while it is
// drained, and the Node of another VM may then have its name: whether that one is drained, too, is
// a new decision.
func isAt(p *pass, node *corev1.Node) bool {
	return p.world.Node.State == lifecycle.NodePresent && p.world.Node.Node.UID == node.UID
}

// continueDrain carries out the actions of a drain that are possible now.
func (s *drains) continueDrain(
	ctx context.Context, p *pass, d *drainer.Drain, order drain.Order,
) (v drain.Verdict, isSame bool, err error) {
	key := objectcache.Key(p.world.Machine)
	owner := drainer.Owner{UID: p.world.Machine.UID, Namespace: key.Namespace, Wake: func() { s.wake(key) }}
	task := drainer.Task{Owner: owner, Node: p.world.Node.Node, Cluster: p.cluster, Order: order, Driver: p.driver}
	if listed := p.listed; listed != nil && listed.node == task.Node.UID {
		task.Pods, task.Listed = listed.pods, true
	}
	p.listed = nil // it is valid for one decision only
	task.Cordon = func(ctx context.Context) (*corev1.Node, error) {
		if err := s.nodes.cordon(ctx, p); err != nil || !isAt(p, task.Node) {
			return nil, err
		}
		return p.world.Node.Node, nil
	}
	task.Warn = func(ctx context.Context, message string) {
		s.warn(ctx, p.world.Machine, message)
	}
	return d.Continue(ctx, task)
}

// setTerminating sets the condition NodeTerminating on the Node, with the reason for the deletion
// of its machine. Before that, in a separate step, it cordons the Node. It lists the pods for the
// drain of this pass; if the Node is empty, the same write removes our finalizer. If the list
// fails, the condition is set all the same, and the drain reports the error if it persists.
func (s *drains) setTerminating(ctx context.Context, p *pass) error {
	node := p.world.Node.Node
	if !node.Spec.Unschedulable {
		return s.nodes.cordon(ctx, p)
	}
	pods, err := drainer.ListPods(ctx, p.cluster, node.Name)
	if err != nil {
		klog.FromContext(ctx).V(2).Info("Failed to list pods of Node; setting its condition without removing its finalizer", "node", node.Name,
			"err", err)
	} else {
		p.listed = &sighting{node: node.UID, pods: pods}
	}
	now := metav1.NewTime(s.clock.Now())
	condition := corev1.NodeCondition{
		Type: v1alpha1.NodeTerminating, Status: corev1.ConditionTrue, LastHeartbeatTime: now, LastTransitionTime: now,
		Reason:  lifecycle.NodeReason(p.world.Machine),
		Message: fmt.Sprintf("Machine %s/%s is being deleted.", p.world.Machine.Namespace, p.world.Machine.Name),
	}
	patch := &nodesync.Patch{Body: map[string]any{"status": map[string]any{"conditions": []corev1.NodeCondition{condition}}}, Status: true}
	release := err == nil && drain.MayRelease(node, pods)
	if release {
		// Without resourceVersion: other controllers write the Node right after the cordon, and the patch
		// would conflict. If a client deletes the Node between this write and the deletion of the VM, the
		// Node is gone before its VM.
		patch.Body["metadata"] = withoutFinalizer()
	}
	patched, err := s.nodes.patch(ctx, p, patch)
	if patched && release && !slices.Contains(p.world.Node.Node.Finalizers, v1alpha1.NodeFinalizerName) {
		s.memory.change(p.world.Machine.UID, func(is *remembered) { is.released = node.UID })
	}
	return err
}

// reportAfter is how long requests to an API server may fail before the machine's status reports
// the error.
const reportAfter = 5 * time.Second

// unanswered records an error of the target cluster as a fact about the drain of a machine that is
// being deleted: after reportAfter, the machine's status reports the error; after the time for the
// drain, the drain is given up. Errors: those that are not recorded.
func (s *drains) unanswered(ctx context.Context, p *pass, err error) error {
	m := p.world.Machine
	if m.DeletionTimestamp == nil || p.world.Drain.State.Ended() {
		return err
	}
	d := s.Of(m.UID, drainer.ForDeletion)
	switch {
	case err == nil:
		d.Answered()
		return nil
	case ctx.Err() != nil || runner.NotOurs(err) || runner.Waits(err) || apierrors.IsConflict(err):
		return err
	}
	report, ok := d.Unanswered(ctx, drain.ForDeletion(m, s.settings).Under(p.world.Reach, p.world.Now), lifecycle.NodeName(m), err)
	if !ok {
		return err // retried after the back-off
	}
	p.world.Drain = report
	return nil
}
