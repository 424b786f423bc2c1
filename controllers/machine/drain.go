package machine

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machine/inplace"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machine/lifecycle"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machine/nodesync"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machine/preserve"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/decode"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/drainer"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/drainer/drain"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/machinefacts"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/nodeowner"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/objectcache"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/pages"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/runner"
)

// drainNode continues the drain of the Node of a machine that is being deleted. It drops the drains of that Node for other aims.
func (c *Controller) drainNode(ctx context.Context, p *pass) error {
	m := p.world.Machine
	c.drains.Drop(m.UID, drainer.ForPreservation)
	c.drains.Drop(m.UID, drainer.ForUpdate)
	d := c.drains.Of(m.UID, drainer.ForDeletion)
	v, isSame, err := c.continueDrain(ctx, p, d, drain.ForDeletion(m, c.cfg.Limits.Drain).Under(p.world.Reach, p.world.Now))
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

// drainPreserved continues the drain of the Node of a failed machine that is preserved.
func (c *Controller) drainPreserved(ctx context.Context, p *pass) error {
	m := p.world.Machine
	d := c.drains.Of(m.UID, drainer.ForPreservation)
	v, isSame, err := c.continueDrain(ctx, p, d, drain.ForPreservation(m, c.cfg.Limits.Drain).Under(p.world.Reach, p.world.Now))
	if err != nil || !isSame {
		return err
	}
	p.world.PreservedDrain, d.Reported = lifecycle.PreservedDrainOf(p.world.Now, d.Reported, v)
	if v.State.Ended() {
		c.drains.Drop(m.UID, drainer.ForPreservation)
	}
	return nil
}

// drainForUpdate continues the drain of a Node that will be updated in place.
func (c *Controller) drainForUpdate(ctx context.Context, p *pass) error {
	m, node := p.world.Machine, p.world.Node.Node
	d := c.drains.Of(m.UID, drainer.ForUpdate)
	v, isSame, err := c.continueDrain(ctx, p, d, drain.ForUpdate(m, inplace.SelectedAt(node), c.cfg.Limits.Drain).Under(p.world.Reach, p.world.Now))
	if err != nil || !isSame {
		return err
	}
	d.Reported, p.world.UpdateDrain = d.Reported.NextForUpdate(p.world.Now, v)
	if v.State.Ended() {
		c.drains.Drop(m.UID, drainer.ForUpdate)
	}
	return nil
}

// dropUnwanted drops the drains that no decision of this pass has continued.
func (c *Controller) dropUnwanted(p *pass) {
	m := p.world.Machine.UID
	if p.world.PreservedDrain.State == preserve.DrainUnknown {
		c.drains.Drop(m, drainer.ForPreservation)
	}
	if p.world.UpdateDrain.State == drain.Unknown {
		c.drains.Drop(m, drainer.ForUpdate)
	}
}

// isAt reports whether the pass is still about this Node. The Node may be deleted while it is drained, and the Node of another VM may
// then have its name: whether that one is drained, too, is a new decision.
func isAt(p *pass, node *corev1.Node) bool {
	return p.world.Node.State == lifecycle.NodePresent && p.world.Node.Node.UID == node.UID
}

// continueDrain carries out the actions of a drain that are possible now.
func (c *Controller) continueDrain(ctx context.Context, p *pass, d *drainer.Drain, order drain.Order) (v drain.Verdict, isSame bool, err error) {
	key := objectcache.Key(p.world.Machine)
	owner := drainer.Owner{UID: p.world.Machine.UID, Namespace: key.Namespace, Wake: func() { c.runner.Enqueue(key) }}
	task := drainer.Task{Owner: owner, Node: p.world.Node.Node, Cluster: p.cluster, Order: order, Driver: p.driver}
	if listed := p.listed; listed != nil && listed.node == task.Node.UID {
		task.Pods, task.Listed = listed.pods, true
	}
	p.listed = nil // it is valid for one decision only
	task.Cordon = func(ctx context.Context) (*corev1.Node, error) {
		if err := c.cordon(ctx, p); err != nil || !isAt(p, task.Node) {
			return nil, err
		}
		return p.world.Node.Node, nil
	}
	task.Warn = func(ctx context.Context, message string) {
		c.report(ctx, p.world.Machine, p.world.Machine, lifecycle.Event{Reason: v1alpha1.EventEvictionTimedOut, Message: message})
	}
	return d.Continue(ctx, task)
}

// cordon cordons the Node, with one write.
func (c *Controller) cordon(ctx context.Context, p *pass) error {
	cordoned := p.world.Node.Node.DeepCopy()
	machinefacts.Cordon(cordoned)
	spec := map[string]any{"unschedulable": true}
	isTainted := len(cordoned.Spec.Taints) == len(p.world.Node.Node.Spec.Taints)
	if !isTainted {
		spec["taints"] = cordoned.Spec.Taints
	}
	body := map[string]any{"spec": spec}
	if m := p.world.Machine; !nodeowner.IsBound(m, p.world.Node.Node) { // never claimed: the annotation spares later passes the search for its owner
		body["metadata"] = map[string]any{"annotations": map[string]any{v1alpha1.AnnotationMachine: v1alpha1.RefOf(m).String()}}
	}
	_, err := c.patchNode(ctx, p, &nodesync.Patch{Body: body, AsRead: !isTainted})
	return err
}

// setTerminating sets the condition NodeTerminating on the Node, with the reason for the deletion of its machine. Before that, in a step of
// its own, it cordons the Node. It lists the pods for the drain of this pass; if the Node is empty, the same write removes our
// finalizer. If the list fails, the condition is set all the same, and the drain reports the error if it persists.
func (c *Controller) setTerminating(ctx context.Context, p *pass) error {
	node := p.world.Node.Node
	if !node.Spec.Unschedulable {
		return c.cordon(ctx, p)
	}
	pods, err := drainer.ListPods(ctx, p.cluster, node.Name)
	if err != nil {
		klog.FromContext(ctx).V(2).Info("Failed to list pods of Node; setting its condition without removing its finalizer", "node", node.Name, "err", err)
	} else {
		p.listed = &sighting{node: node.UID, pods: pods}
	}
	now := metav1.NewTime(c.cfg.Clock.Now())
	condition := corev1.NodeCondition{
		Type: v1alpha1.NodeTerminating, Status: corev1.ConditionTrue, LastHeartbeatTime: now, LastTransitionTime: now,
		Reason: lifecycle.NodeReason(p.world.Machine), Message: fmt.Sprintf("Machine %s/%s is being deleted.", p.world.Machine.Namespace, p.world.Machine.Name),
	}
	patch := &nodesync.Patch{Body: map[string]any{"status": map[string]any{"conditions": []corev1.NodeCondition{condition}}}, Status: true}
	release := err == nil && drain.MayRelease(node, pods)
	if release {
		// Without resourceVersion: other controllers write the Node right after the cordon, and the patch would conflict. If a client
		// deletes the Node between this write and the deletion of the VM, the Node is gone before its VM.
		patch.Body["metadata"] = withoutFinalizer()
	}
	patched, err := c.patchNode(ctx, p, patch)
	if patched && release && !slices.Contains(p.world.Node.Node.Finalizers, v1alpha1.NodeFinalizerName) {
		c.memory.change(p.world.Machine.UID, func(is *remembered) { is.released = node.UID })
	}
	return err
}

// findNodeByMachine looks for the Node of a machine for which no Node name is known, by the label on the Node that names its machine.
func (c *Controller) findNodeByMachine(ctx context.Context, p *pass) error {
	m := p.world.Machine
	found := lifecycle.NodeFact{State: lifecycle.NodeAbsent}
	named := metav1.ListOptions{LabelSelector: v1alpha1.LabelMachineName + "=" + m.Name}
	err := pages.Until(ctx, "Nodes", named, p.cluster.Client.CoreV1().Nodes().List, func(page *corev1.NodeList, _ []*decode.Failure) bool {
		for i := range page.Items {
			if node := &page.Items[i]; nodeowner.Relate(m, node) != nodeowner.Foreign {
				found = lifecycle.NodeFact{State: lifecycle.NodePresent, Node: node}
			}
		}
		return false
	})
	if err != nil {
		return fmt.Errorf("look for the Node of machine %s/%s: %w", m.Namespace, m.Name, err)
	}
	p.world.Node = found
	return nil
}

// patience is how long requests to an API server may fail before the machine's status reports the error.
const patience = 5 * time.Second

// unanswered records an error of the target cluster as a fact about the drain of a machine that is being deleted: after patience, the
// machine's status reports the error; after the time for the drain, the drain is given up. Errors: those that are not recorded.
func (c *Controller) unanswered(ctx context.Context, p *pass, err error) error {
	m := p.world.Machine
	if m.DeletionTimestamp == nil || p.world.Drain.State.Ended() {
		return err
	}
	d := c.drains.Of(m.UID, drainer.ForDeletion)
	switch {
	case err == nil:
		d.Answered()
		return nil
	case ctx.Err() != nil || runner.NotOurs(err) || apierrors.IsConflict(err):
		return err
	}
	report, ok := d.Unanswered(ctx, drain.ForDeletion(m, c.cfg.Limits.Drain).Under(p.world.Reach, p.world.Now), lifecycle.NodeName(m), err)
	if !ok {
		return err // retried after the back-off
	}
	p.world.Drain = report
	return nil
}
