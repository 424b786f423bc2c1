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
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/machinefacts"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/nodeowner"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/telemetry"
)

// refusedRetry is the time after which values that the API server has rejected are sent again.
// After a change of the machine or the class they are sent at once.
const refusedRetry = 10 * time.Minute

// refusal is the API server's rejection of the values of machine and class for a Node.
type refusal struct {
	generation int64 // of the machine
	why        string
	until      time.Time
}

// note records the Node in the world, with what this process remembers of writing it.
func (n *nodes) note(p *pass, node *corev1.Node) {
	now := n.clock.Now()
	fact := lifecycle.NodeFact{State: lifecycle.NodePresent, Node: node, RestUntil: n.writes.until(writesOf{p.cluster.Name, node.UID}, now)}
	if r := n.memory.of(p.world.Machine.UID).refused; r.generation == p.world.Machine.Generation && now.Before(r.until) {
		fact.Refused, fact.RefusedUntil = r.why, r.until
	}
	p.world.Node = fact
}

// claim binds the Node to the machine, and records on it the trace of that. It remembers the Node
// as returned, so that later passes need not wait for the cache.
func (n *nodes) claim(ctx context.Context, p *pass, patch *nodesync.Patch) error {
	name := p.world.Node.Node.Name
	if parent := telemetry.Traceparent(ctx); parent != "" {
		patch = patch.WithAnnotation(v1alpha1.AnnotationTraceparent, parent)
	}
	written, err := n.writeIfFit(ctx, p, patch)
	if written {
		n.claims.change(p.cluster.Key(name), func(is *claim) { *is = claim{node: p.world.Node.Node, at: n.own.Now()} })
	}
	return err
}

// write patches the Node with the values of machine and class.
func (n *nodes) write(ctx context.Context, p *pass, patch *nodesync.Patch) error {
	_, err := n.writeIfFit(ctx, p, patch)
	return err
}

// writeIfFit patches the Node; written reports whether it did. If the API server rejects the patch
// as not valid or not allowed, that is recorded in the world, and lifecycle.Decide leaves the
// values of machine and class out of the next patch. Only the rejection of that patch is an error.
func (n *nodes) writeIfFit(ctx context.Context, p *pass, patch *nodesync.Patch) (written bool, err error) {
	written, err = n.patch(ctx, p, patch)
	unfit := apierrors.IsInvalid(err) || apierrors.IsForbidden(err) || apierrors.IsBadRequest(err)
	if unfit && p.world.Node.Refused != "" {
		n.memory.change(p.world.Machine.UID, func(is *remembered) { is.refused = refusal{} }) // those values were not the reason
	}
	if !unfit || p.world.Node.Refused != "" {
		return written, err
	}
	klog.FromContext(ctx).V(2).Info("API server rejected Node patch", "node", p.world.Node.Node.Name, "err", err)
	m := p.world.Machine
	r := refusal{generation: m.Generation, why: err.Error(), until: n.clock.Now().Add(refusedRetry)}
	n.memory.change(m.UID, func(is *remembered) { is.refused = r })
	p.world.Node.Refused, p.world.Node.RefusedUntil = r.why, r.until
	return false, nil
}

// patch sends a patch by strategic merge, which adds and removes single labels, finalizers and
// conditions: a Node has many writers, and the values of the others remain. The patch is for the
// Node with this UID, not for a later one of the same name, and with AsRead for the version that
// was read. If the API server has another Node or version, the Node is read anew and recorded in
// the world; if it has none, that is recorded. patched is then false.
func (n *nodes) patch(ctx context.Context, p *pass, patch *nodesync.Patch) (patched bool, err error) {
	node := p.world.Node.Node
	data, err := encode(node, patch)
	if err != nil {
		return false, fmt.Errorf("encode patch of Node %s: %w", node.Name, err)
	}
	var subresource []string
	if patch.Status {
		subresource = []string{"status"}
	}
	written, err := p.cluster.Client.CoreV1().Nodes().Patch(ctx, node.Name, types.StrategicMergePatchType, data,
		metav1.PatchOptions{}, subresource...)
	switch {
	case apierrors.IsConflict(err):
		return false, n.find(ctx, p)
	case apierrors.IsNotFound(err):
		p.world.Node = lifecycle.NodeFact{State: lifecycle.NodeAbsent}
		return false, nil
	case err != nil:
		return false, fmt.Errorf("patch Node %s: %w", node.Name, err)
	}
	p.cluster.Wrote(node, written)
	p.cluster.ByPasses.Wrote(node, written)
	n.writes.wrote(writesOf{p.cluster.Name, node.UID}, n.clock.Now())
	wasWritten := p.world.Node.Written
	n.note(p, written)
	p.world.Node.Written = wasWritten || !patch.Status
	return true, nil
}

// encode returns a patch as JSON, with the UID of its Node and, with AsRead, the resourceVersion:
// the API server then rejects it for any other.
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

// cordon cordons the Node, with one write.
func (n *nodes) cordon(ctx context.Context, p *pass) error {
	cordoned := p.world.Node.Node.DeepCopy()
	machinefacts.Cordon(cordoned)
	spec := map[string]any{"unschedulable": true}
	isTainted := len(cordoned.Spec.Taints) == len(p.world.Node.Node.Spec.Taints)
	if !isTainted {
		spec["taints"] = cordoned.Spec.Taints
	}
	body := map[string]any{"spec": spec}
	// Never claimed: the annotation spares later passes the search for its owner.
	if m := p.world.Machine; !nodeowner.IsBound(m, p.world.Node.Node) {
		body["metadata"] = map[string]any{"annotations": map[string]any{v1alpha1.AnnotationMachine: v1alpha1.RefOf(m).String()}}
	}
	_, err := n.patch(ctx, p, &nodesync.Patch{Body: body, AsRead: !isTainted})
	return err
}
