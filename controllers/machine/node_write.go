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

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machine/lifecycle"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machine/nodesync"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/telemetry"
)

// refusedRetry is the time after which values that the API server has rejected are sent again. After a change of the machine or the
// class they are sent at once.
const refusedRetry = 10 * time.Minute

// refusal is the API server's rejection of the values of machine and class for a Node.
type refusal struct {
	generation int64 // of the machine
	why        string
	until      time.Time
}

// noteNode records the Node in the world, with what this process remembers of writing it.
func (c *Controller) noteNode(p *pass, node *corev1.Node) {
	now := c.cfg.Clock.Now()
	fact := lifecycle.NodeFact{State: lifecycle.NodePresent, Node: node, RestUntil: c.nodeWriteLimit.until(node.UID, now)}
	if r := c.memory.of(p.world.Machine.UID).refused; r.generation == p.world.Machine.Generation && now.Before(r.until) {
		fact.Refused, fact.RefusedUntil = r.why, r.until
	}
	p.world.Node = fact
}

// claimNode binds the Node to the machine, and records on it the trace of that. It remembers the Node as returned, so that later passes need not wait for the cache.
func (c *Controller) claimNode(ctx context.Context, p *pass, patch *nodesync.Patch) error {
	name := p.world.Node.Node.Name
	if parent := telemetry.Traceparent(ctx); parent != "" {
		patch = patch.WithAnnotation(v1alpha1.AnnotationTraceparent, parent)
	}
	written, err := c.writeNodeIfFit(ctx, p, patch)
	if written {
		c.claims.change(name, func(is *claim) { *is = claim{node: p.world.Node.Node, at: c.own.Now()} })
	}
	return err
}

// writeNode patches the Node with the values of machine and class.
func (c *Controller) writeNode(ctx context.Context, p *pass, patch *nodesync.Patch) error {
	_, err := c.writeNodeIfFit(ctx, p, patch)
	return err
}

// writeNodeIfFit patches the Node; written reports whether it did. If the API server rejects the patch as not valid or not allowed,
// that is recorded in the world, and lifecycle.Decide leaves the values of machine and class out of the next patch. Only the rejection
// of that patch is an error.
func (c *Controller) writeNodeIfFit(ctx context.Context, p *pass, patch *nodesync.Patch) (written bool, err error) {
	written, err = c.patchNode(ctx, p, patch)
	unfit := apierrors.IsInvalid(err) || apierrors.IsForbidden(err) || apierrors.IsBadRequest(err)
	if unfit && p.world.Node.Refused != "" {
		c.memory.change(p.world.Machine.UID, func(is *remembered) { is.refused = refusal{} }) // those values were not the reason
	}
	if !unfit || p.world.Node.Refused != "" {
		return written, err
	}
	klog.FromContext(ctx).V(2).Info("API server rejected Node patch", "node", p.world.Node.Node.Name, "err", err)
	m := p.world.Machine
	r := refusal{generation: m.Generation, why: err.Error(), until: c.cfg.Clock.Now().Add(refusedRetry)}
	c.memory.change(m.UID, func(is *remembered) { is.refused = r })
	p.world.Node.Refused, p.world.Node.RefusedUntil = r.why, r.until
	return false, nil
}

// patchNode sends a patch by strategic merge, which adds and removes single labels, finalizers and conditions: a Node has many writers,
// and the values of the others remain. The patch is for the Node with this UID, not for a later one of the same name, and with AsRead
// for the version that was read. If the API server has another Node or version, the Node is read anew and recorded in the world; if it
// has none, that is recorded. patched is then false.
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
	c.nodeWriteLimit.wrote(written.UID, c.cfg.Clock.Now())
	wasWritten := p.world.Node.Written
	c.noteNode(p, written)
	p.world.Node.Written = wasWritten || !patch.Status
	return true, nil
}

// encode returns a patch as JSON, with the UID of its Node and, with AsRead, the resourceVersion: the API server then rejects it for
// any other.
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
