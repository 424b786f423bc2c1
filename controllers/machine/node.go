package machine

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machine/lifecycle"
)

// findNode reads the Node past the cache.
func (c *Controller) findNode(ctx context.Context, p *pass) error {
	name := cmp.Or(lifecycle.NodeName(p.world.Machine), p.world.VM.NodeName)
	node, err := p.cluster.Client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		c.claims.Delete(name)
		p.world.Node = lifecycle.NodeFact{State: lifecycle.NodeAbsent}
	case err != nil:
		return fmt.Errorf("read Node %s: %w", name, err)
	default:
		p.world.Node = lifecycle.NodeFact{State: lifecycle.NodePresent, Node: node}
	}
	return nil
}

// claimNode puts our finalizer, the machine's name and its slot on the Node. The answer is the Node, so nobody waits for
// the cache.
func (c *Controller) claimNode(ctx context.Context, p *pass) error {
	labels := map[string]any{v1alpha1.LabelMachineName: p.world.Machine.Name, v1alpha1.LabelSlot: nil}
	if slot, ok := p.world.Machine.Labels[v1alpha1.LabelSlot]; ok {
		labels[v1alpha1.LabelSlot] = slot
	}
	patched, err := c.patchNode(ctx, p, map[string]any{"finalizers": []string{v1alpha1.NodeFinalizerName}, "labels": labels})
	if patched {
		c.claims.Store(p.world.Node.Node.Name, claim{node: p.world.Node.Node, at: c.cfg.Clock.Now()})
	}
	return err
}

// deleteNode lets the Node go and deletes it. Our finalizer is taken off unasked: a cache that does not show it yet is no
// proof that it is not there, and a Node that is deleted with it would stay for ever.
func (c *Controller) deleteNode(ctx context.Context, p *pass) error {
	node := p.world.Node.Node
	patched, err := c.patchNode(ctx, p, map[string]any{"$deleteFromPrimitiveList/finalizers": []string{v1alpha1.NodeFinalizerName}})
	if err != nil || !patched {
		return err
	}
	err = p.cluster.Client.CoreV1().Nodes().Delete(ctx, node.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &node.UID}})
	if apierrors.IsConflict(err) { // another Node has the name now
		return c.findNode(ctx, p)
	}
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete Node %s: %w", node.Name, err)
	}
	p.world.Node = lifecycle.NodeFact{State: lifecycle.NodeAbsent}
	return nil
}

// patchNode changes the Node's metadata, by a strategic merge patch, which adds and removes single finalizers: a Node has
// many writers, and whatever else they write may stay. The patch is for this Node only, not for a later one of the same
// name; when there is such a one, or none, the world is told and patched is false.
func (c *Controller) patchNode(ctx context.Context, p *pass, metadata map[string]any) (patched bool, err error) {
	node := p.world.Node.Node
	metadata["uid"] = node.UID
	data, err := json.Marshal(map[string]any{"metadata": metadata})
	if err != nil {
		return false, fmt.Errorf("encode patch of Node %s: %w", node.Name, err)
	}
	written, err := p.cluster.Client.CoreV1().Nodes().Patch(ctx, node.Name, types.StrategicMergePatchType, data, metav1.PatchOptions{})
	switch {
	case apierrors.IsConflict(err):
		return false, c.findNode(ctx, p)
	case apierrors.IsNotFound(err):
		p.world.Node = lifecycle.NodeFact{State: lifecycle.NodeAbsent}
		return false, nil
	case err != nil:
		return false, fmt.Errorf("patch Node %s: %w", node.Name, err)
	}
	c.nodes.Wrote(written)
	p.world.Node.Node = written
	return true, nil
}

// deleteMachine deletes the Machine object, and tells why; what follows takes it apart.
func (c *Controller) deleteMachine(ctx context.Context, p *pass, why *lifecycle.Event) error {
	m := p.world.Machine
	err := c.cfg.Machines.Machines(m.Namespace).Delete(ctx, m.Name, metav1.DeleteOptions{
		Preconditions: &metav1.Preconditions{UID: &m.UID, ResourceVersion: &m.ResourceVersion},
	})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete machine %s/%s: %w", m.Namespace, m.Name, err)
	}
	if err == nil {
		c.tell(m, why)
	}
	fresh, err := c.cfg.Machines.Machines(m.Namespace).Get(ctx, m.Name, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("read machine %s/%s after its deletion: %w", m.Namespace, m.Name, err)
	}
	c.machines.Wrote(fresh)
	p.world.Machine = fresh
	return nil
}
