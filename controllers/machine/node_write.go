package machine

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machine/lifecycle"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machine/nodesync"
)

// refusedRetry is when the API server is asked again for what it has refused. A change of machine or class is tried at once.
const refusedRetry = 10 * time.Minute

// refusal is what the API server has refused to have a Node carry.
type refusal struct {
	generation int64 // of the machine
	why        string
	until      time.Time
}

// noteNode puts the Node into the world, with what this process remembers of writing it.
func (c *Controller) noteNode(p *pass, node *corev1.Node) {
	now := c.cfg.Clock.Now()
	fact := lifecycle.NodeFact{State: lifecycle.NodePresent, Node: node, RestUntil: c.disruptionChecks.until(node.UID, now)}
	if r := c.memory.of(p.world.Machine.UID).refused; r.generation == p.world.Machine.Generation && now.Before(r.until) {
		fact.Refused, fact.RefusedUntil = r.why, r.until
	}
	p.world.Node = fact
}

// claimNode makes the Node the machine's. The answer is the Node, so nobody waits for the cache.
func (c *Controller) claimNode(ctx context.Context, p *pass, patch *nodesync.Patch) error {
	name := p.world.Node.Node.Name
	written, err := c.writeNodeIfFit(ctx, p, patch)
	if written {
		c.claims.change(name, func(is *claim) { *is = claim{node: p.world.Node.Node, at: c.cfg.Clock.Now()} })
	}
	return err
}

// writeNode has the Node carry what it is to.
func (c *Controller) writeNode(ctx context.Context, p *pass, patch *nodesync.Patch) error {
	_, err := c.writeNodeIfFit(ctx, p, patch)
	return err
}

// writeNodeIfFit patches the Node. That what machine and class ask for cannot be is a fact, and goes into the world: the
// Node then does without. Only a refusal of what remains is an error.
func (c *Controller) writeNodeIfFit(ctx context.Context, p *pass, patch *nodesync.Patch) (written bool, err error) {
	written, err = c.patchNode(ctx, p, patch)
	unfit := apierrors.IsInvalid(err) || apierrors.IsForbidden(err) || apierrors.IsBadRequest(err)
	if unfit && p.world.Node.Refused != "" {
		c.memory.change(p.world.Machine.UID, func(is *remembered) { is.refused = refusal{} }) // it was not that
	}
	if !unfit || p.world.Node.Refused != "" {
		return written, err
	}
	klog.FromContext(ctx).V(2).Info("The Node was refused what its machine asks for", "node", p.world.Node.Node.Name, "err", err)
	m := p.world.Machine
	r := refusal{generation: m.Generation, why: err.Error(), until: c.cfg.Clock.Now().Add(refusedRetry)}
	c.memory.change(m.UID, func(is *remembered) { is.refused = r })
	p.world.Node.Refused, p.world.Node.RefusedUntil = r.why, r.until
	return false, nil
}

// patchNode sends a patch, by strategic merge, which adds and removes single labels, finalizers and conditions: a Node has
// many writers, and whatever else they write may stay. It is for this Node only, not for a later one of the same name, and
// for no other version of it where it rests on what was read. Where that does not hold, the Node is read anew, the world is
// told, and patched is false.
func (c *Controller) patchNode(ctx context.Context, p *pass, patch *nodesync.Patch) (patched bool, err error) {
	node := p.world.Node.Node
	data, err := encode(node, patch)
	if err != nil {
		return false, fmt.Errorf("encode patch of Node %s: %w", node.Name, err)
	}
	var subresource []string
	if patch.Status {
		subresource = []string{"status"}
	}
	written, err := p.cluster.Client.CoreV1().Nodes().Patch(ctx, node.Name, types.StrategicMergePatchType, data, metav1.PatchOptions{}, subresource...)
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
	c.disruptionChecks.wrote(written.UID, c.cfg.Clock.Now())
	wasWritten := p.world.Node.Written
	c.noteNode(p, written)
	p.world.Node.Written = wasWritten || !patch.Status
	return true, nil
}

// encode adds to a patch which Node it is for.
func encode(node *corev1.Node, patch *nodesync.Patch) ([]byte, error) {
	metadata := map[string]any{}
	if given, ok := patch.Body["metadata"].(map[string]any); ok {
		metadata = maps.Clone(given)
	}
	metadata["uid"] = node.UID
	if patch.AsRead {
		metadata["resourceVersion"] = node.ResourceVersion
	}
	body := maps.Clone(patch.Body)
	body["metadata"] = metadata
	return json.Marshal(body)
}
