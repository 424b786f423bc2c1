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
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machine/drain"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machine/drainwatch"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machine/inplace"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machine/lifecycle"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machine/nodesync"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machine/preserve"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/nodeowner"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/objectcache"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/runner"
	"github.com/machine-controller-fleet/machine-controller-fleet/target"
)

// maxDrainSteps bounds how many actions one pass carries out for a drain, so that the worker can process other machines.
const maxDrainSteps = 8

// drainNode continues the drain of the Node of a machine that is being deleted. It drops the drains of that Node for other aims.
func (c *Controller) drainNode(ctx context.Context, p *pass) error {
	m, node := p.world.Machine, p.world.Node.Node
	c.drains.drop(m.UID, forPreservation)
	c.drains.drop(m.UID, forUpdate)
	d := c.drains.of(m.UID)
	v, err := c.goOn(ctx, p, d, drain.ForDeletion(m, c.cfg.Limits.Drain))
	switch {
	case err != nil, !isAt(p, node):
		return err
	case v.Do != drain.Rest:
		p.world.Drain = d.reported.Again()
	case v.State.Ended():
		p.world.Drain = drain.End(v, d.wasThere())
		d.end(v.State)
	default:
		d.reported, p.world.Drain = d.reported.Next(c.cfg.Clock.Now(), v)
	}
	return nil
}

// drainPreserved continues the drain of the Node of a failed machine that is preserved.
func (c *Controller) drainPreserved(ctx context.Context, p *pass) error {
	m, node := p.world.Machine, p.world.Node.Node
	d := c.drains.with(m.UID, forPreservation)
	v, err := c.goOn(ctx, p, d, drain.ForPreservation(m, c.cfg.Limits.Drain))
	if err != nil || !isAt(p, node) {
		return err
	}
	p.world.PreservedDrain, d.reported = lifecycle.PreservedDrainOf(c.cfg.Clock.Now(), d.reported, v)
	if v.State.Ended() {
		c.drains.drop(m.UID, forPreservation)
	}
	return nil
}

// drainForUpdate continues the drain of a Node that will be updated in place.
func (c *Controller) drainForUpdate(ctx context.Context, p *pass) error {
	m, node := p.world.Machine, p.world.Node.Node
	d := c.drains.with(m.UID, forUpdate)
	v, err := c.goOn(ctx, p, d, drain.ForUpdate(m, inplace.SelectedAt(node), c.cfg.Limits.Drain))
	if err != nil || !isAt(p, node) {
		return err
	}
	p.world.UpdateDrain, d.reported = lifecycle.UpdateDrainOf(c.cfg.Clock.Now(), d.reported, v)
	if v.State.Ended() {
		c.drains.drop(m.UID, forUpdate)
	}
	return nil
}

// dropUnwanted drops the drains that no decision of this pass has continued.
func (c *Controller) dropUnwanted(p *pass) {
	m := p.world.Machine.UID
	if p.world.PreservedDrain.State == preserve.DrainUnknown {
		c.drains.drop(m, forPreservation)
	}
	if p.world.UpdateDrain.State == drain.Unknown {
		c.drains.drop(m, forUpdate)
	}
}

// isAt reports whether the pass is still about this Node. The Node may be deleted while it is drained, and the Node of another VM may
// then have its name: whether that one is drained, too, is a new decision.
func isAt(p *pass, node *corev1.Node) bool {
	return p.world.Node.State == lifecycle.NodePresent && p.world.Node.Node.UID == node.UID
}

// goOn carries out the actions of a drain that are possible now. It does not wait: what the drain depends on is watched, and a change
// enqueues the machine. It returns a verdict whose action was not carried out if the drain has used up maxDrainSteps. It is one action
// of a pass and not a runner.Pass of its own: running out of steps is not a defect here, and its result is a verdict that
// lifecycle.Decide decides on.
func (c *Controller) goOn(ctx context.Context, p *pass, d *draining, order drain.Order) (v drain.Verdict, err error) {
	m := p.world.Machine
	facts := drain.Facts{Settings: c.cfg.Limits.Drain, Order: order, Node: p.world.Node.Node, Memory: d.memory}
	if seen := p.listed; seen != nil && seen.node == facts.Node.UID {
		facts.Live, facts.Sight, facts.Pods = true, drain.Listed, seen.pods
	}
	p.listed = nil // it is valid for one decision only
	for range maxDrainSteps {
		facts.Now = c.cfg.Clock.Now()
		freed := c.look(ctx, p, d, &facts)
		v = drain.Decide(facts)
		d.memory, facts.Memory = v.Memory, v.Memory
		klog.FromContext(ctx).V(4).Info("Decided on the drain", "action", v.Do, "pods", len(v.Pods), "attachments", len(v.Attachments))
		c.drains.detaches.set(p.cluster, m, v.Moving)
		if v.Do == drain.Rest {
			c.await(p, d, v, freed)
			if wait := d.ids.wait(c.cfg.Clock.Now()); wait > 0 && (v.Wake == 0 || wait < v.Wake) {
				v.Wake = wait
			}
			return v, nil
		}
		if err := runner.MayGoOn(ctx); err != nil {
			return v, err
		}
		if err := c.drainStep(ctx, p, d, &facts, v); err != nil || !isAt(p, facts.Node) {
			return v, err
		}
		facts.Node = p.world.Node.Node
	}
	return v, nil
}

// look records in the facts what the watches show. A drain that waits until more volumes may move passes freed to detaches.await.
func (c *Controller) look(ctx context.Context, p *pass, d *draining, facts *drain.Facts) (freed int) {
	facts.FreeDetaches, freed = c.drains.detaches.free(p.cluster, p.world.Machine.Namespace)
	session := d.seen()
	if session == nil {
		return freed
	}
	facts.Blind = session.Trouble()
	if session.Show(facts) {
		facts.Volumes.IDs = c.volumeIDs(ctx, p, d, facts)
	}
	return freed
}

// drainStep carries out one action of a drain. It sends each request once: retries against an overloaded API server would occupy the
// worker.
func (c *Controller) drainStep(ctx context.Context, p *pass, d *draining, facts *drain.Facts, v drain.Verdict) error {
	ctx = target.Once(ctx)
	switch v.Do {
	case drain.Rest:
	case drain.Cordon:
		facts.Live = false
		return c.cordon(ctx, p)
	case drain.List:
		pods, err := listPods(ctx, p)
		if err != nil {
			return err
		}
		facts.Live, facts.Sight, facts.Pods = true, max(facts.Sight, drain.Listed), pods
	case drain.Watch:
		facts.Sight = drain.Awaited
		key := objectcache.Key(p.world.Machine)
		d.begin(func() *drainwatch.Session {
			return c.drains.watches.Begin(p.cluster.Client, facts.Node.Name, func() { c.runner.Enqueue(key) })
		})
	case drain.Mark:
		return c.mark(ctx, p, d, facts, v)
	case drain.Remove:
		return c.remove(ctx, p, d, facts, v)
	}
	return nil
}

// listPods reads the pods of the Node past all caches.
func listPods(ctx context.Context, p *pass) (pods []*corev1.Pod, err error) {
	node := p.world.Node.Node.Name
	list, err := p.cluster.Client.CoreV1().Pods(metav1.NamespaceAll).List(ctx, drainwatch.OfNode(node))
	if err != nil {
		return nil, fmt.Errorf("list the pods of Node %s: %w", node, err)
	}
	for i := range list.Items {
		pods = append(pods, &list.Items[i])
	}
	return pods, nil
}

// cordon marks the Node as unschedulable and adds the taint in the same write; otherwise the node lifecycle controller of the target
// cluster would add it by a read and a write of its own.
func (c *Controller) cordon(ctx context.Context, p *pass) error {
	spec, taints := map[string]any{"unschedulable": true}, p.world.Node.Node.Spec.Taints
	cordoned := corev1.Taint{Key: corev1.TaintNodeUnschedulable, Effect: corev1.TaintEffectNoSchedule}
	isTainted := slices.ContainsFunc(taints, func(t corev1.Taint) bool { return t.MatchTaint(&cordoned) })
	if !isTainted {
		spec["taints"] = append(slices.Clone(taints), cordoned)
	}
	body := map[string]any{"spec": spec}
	if m := p.world.Machine; !nodeowner.IsBound(m, p.world.Node.Node) { // never claimed: the annotation spares later passes the search for its owner
		body["metadata"] = map[string]any{"annotations": map[string]any{v1alpha1.AnnotationMachine: v1alpha1.RefOf(m).String()}}
	}
	_, err := c.patchNode(ctx, p, &nodesync.Patch{Body: body, AsRead: !isTainted})
	return err
}

// await registers what the drain waits for; after its end, nothing.
func (c *Controller) await(p *pass, d *draining, v drain.Verdict, freed int) {
	if v.State.Ended() {
		c.drains.detaches.forget(p.world.Machine.UID)
		return
	}
	if len(v.Progress.Waiting) > 0 {
		key := objectcache.Key(p.world.Machine)
		c.drains.detaches.await(p.cluster, p.world.Machine.UID, freed, func() { c.runner.Enqueue(key) })
	}
	if session := d.seen(); session != nil {
		awaited := map[string]bool{}
		for volume, m := range v.Memory.Volumes {
			awaited[volume] = !m.DetachedSince.IsZero()
		}
		session.Await(awaited)
	}
}

// markNode sets the condition NodeTerminating on the Node, with the reason for the deletion of its machine. Before that, in a step of
// its own, it cordons the Node. It lists the pods for the drain of this pass; if the Node is empty, the same write removes our
// finalizer. If the list fails, the Node is marked all the same, and the drain reports the error if it persists.
func (c *Controller) markNode(ctx context.Context, p *pass) error {
	node := p.world.Node.Node
	if !node.Spec.Unschedulable {
		return c.cordon(ctx, p)
	}
	pods, err := listPods(ctx, p)
	if err != nil {
		klog.FromContext(ctx).V(2).Info("Failed to list pods of Node; marking Node without removing its finalizer", "node", node.Name, "err", err)
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
		c.drains.of(p.world.Machine.UID).release(node.UID)
	}
	return err
}

// findNodeByMachine looks for the Node of a machine for which no Node name is known, by the label on the Node that names its machine.
func (c *Controller) findNodeByMachine(ctx context.Context, p *pass) error {
	m := p.world.Machine
	list, err := p.cluster.Client.CoreV1().Nodes().List(ctx, metav1.ListOptions{LabelSelector: v1alpha1.LabelMachineName + "=" + m.Name})
	if err != nil {
		return fmt.Errorf("look for the Node of machine %s/%s: %w", m.Namespace, m.Name, err)
	}
	p.world.Node = lifecycle.NodeFact{State: lifecycle.NodeAbsent}
	for i := range list.Items {
		if node := &list.Items[i]; nodeowner.Relate(m, node) != nodeowner.Foreign {
			p.world.Node = lifecycle.NodeFact{State: lifecycle.NodePresent, Node: node}
		}
	}
	return nil
}

// patience is how long requests to an API server may fail before the machine's status reports the error.
const patience = 5 * time.Second

// unanswered records an error of the target cluster as a fact about the drain of a machine that is being deleted: after patience, the
// machine's status reports the error; after the time for the drain, the drain is given up. Otherwise the VM would remain for as long
// as its cluster does not answer. Errors: those that are not recorded.
func (c *Controller) unanswered(ctx context.Context, p *pass, err error) error {
	m := p.world.Machine
	if m.DeletionTimestamp == nil || p.world.Drain.State.Ended() {
		return err
	}
	d, now := c.drains.of(m.UID), c.cfg.Clock.Now()
	switch {
	case err == nil:
		d.failing = time.Time{}
		return nil
	case ctx.Err() != nil || runner.NotOurs(err) || apierrors.IsConflict(err):
		return err
	case drain.ForDeletion(m, c.cfg.Limits.Drain).IsOver(now):
		klog.FromContext(ctx).Error(err, "Drain timed out while requests to the target cluster fail; deleting VM", "node", lifecycle.NodeName(m))
		p.world.Drain = drain.GiveUp(lifecycle.NodeName(m))
		d.end(p.world.Drain.State)
		c.drains.detaches.forget(m.UID)
		return nil
	case d.failing.IsZero():
		d.failing = now
	}
	if now.Sub(d.failing) < patience {
		return err // retried after the back-off
	}
	klog.FromContext(ctx).V(1).Info("Failed to drain Node; retrying", "node", lifecycle.NodeName(m), "err", err)
	d.reported, p.world.Drain = d.reported.Unanswered(now, lifecycle.NodeName(m), err)
	return nil
}
