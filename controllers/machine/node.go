package machine

import (
	"cmp"
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machine/lifecycle"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machine/nodesync"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/deletion/deletionlog"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/deletion/receipt"
)

// findNode reads the Node past the cache: by its name, or by its machine if no name is known.
func (c *Controller) findNode(ctx context.Context, p *pass) error {
	name := cmp.Or(lifecycle.NodeName(p.world.Machine), p.world.VM.NodeName)
	if name == "" {
		return c.findNodeByMachine(ctx, p)
	}
	node, err := p.cluster.Client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		c.claims.forget(name)
		p.world.Node = lifecycle.NodeFact{State: lifecycle.NodeAbsent}
		return c.findElsewhere(ctx, p)
	case err != nil:
		return fmt.Errorf("read Node %s: %w", name, err)
	default:
		c.noteNode(p, node)
		p.world.Node.Live = true
	}
	return nil
}

// deleteNode removes our finalizer from the Node and deletes the Node. It removes the finalizer whether or not the cache shows it,
// unless that was done when the Node got its condition: a cache that does not show it yet does not prove its absence, and a Node that is
// deleted with it would remain for ever.
func (c *Controller) deleteNode(ctx context.Context, p *pass, why receipt.Reason) error {
	node := p.world.Node.Node
	if node.UID == "" || c.memory.of(p.world.Machine.UID).released != node.UID {
		patched, err := c.patchNode(ctx, p, &nodesync.Patch{Body: map[string]any{"metadata": withoutFinalizer()}})
		if err != nil || !patched {
			return err
		}
	}
	_, err := c.cfg.Deletions.Delete(ctx, c.cfg.Events, deletionOfNode(p, node, why), func(ctx context.Context) error {
		return p.cluster.Client.CoreV1().Nodes().Delete(ctx, node.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &node.UID}})
	})
	if apierrors.IsConflict(err) { // another Node has the name now
		return c.findNode(ctx, p)
	}
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete Node %s: %w", node.Name, err)
	}
	p.world.Node = lifecycle.NodeFact{State: lifecycle.NodeAbsent}
	return nil
}

// withoutFinalizer returns the metadata of a patch that removes our finalizer from a Node, if it is there.
func withoutFinalizer() map[string]any {
	return map[string]any{"$deleteFromPrimitiveList/finalizers": []string{v1alpha1.NodeFinalizerName}}
}

// deleteMachine deletes the Machine object, and emits why. Its finalizer keeps the object, which is read with its deletion timestamp,
// so that this pass continues with the deletion of VM and Node.
func (c *Controller) deleteMachine(ctx context.Context, p *pass, verdict lifecycle.Verdict) error {
	m := p.world.Machine
	deletion := deletionlog.OfMachine(m, verdict.Why)
	deletion.About = c.withRoot(m)
	_, err := c.cfg.Deletions.Delete(ctx, c.cfg.Events, deletion, func(ctx context.Context) error {
		return c.cfg.Machines.Machines(m.Namespace).Delete(ctx, m.Name, metav1.DeleteOptions{
			Preconditions: &metav1.Preconditions{UID: &m.UID, ResourceVersion: &m.ResourceVersion},
		})
	})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete machine %s/%s: %w", m.Namespace, m.Name, err)
	}
	if err == nil {
		c.report(ctx, m, m, verdict.Events...)
	}
	fresh, err := c.cfg.Machines.Machines(m.Namespace).Get(ctx, m.Name, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("read machine %s/%s after its deletion: %w", m.Namespace, m.Name, err)
	}
	c.machines.Wrote(fresh)
	p.world.Machine = fresh
	return nil
}
