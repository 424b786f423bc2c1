package update

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/fleet/v1alpha1"
	machinev1alpha1 "github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/objectcache"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/runner"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/telemetry"
)

const (
	// mostTaints is how many taints a pass writes; assignments and drains of the same pool do not wait
	// for more.
	mostTaints = 50
	// mostNames is how many Nodes an Event names.
	mostNames = 5
)

// write changes a Node, if it still has the version that was decided on. It returns nil without an
// error when the Node is gone.
func (c *Controller) write(ctx context.Context, node *corev1.Node, change func(node *corev1.Node)) (*corev1.Node, error) {
	if err := runner.MayGoOn(ctx); err != nil {
		return nil, err
	}
	changed := node.DeepCopy()
	change(changed)
	written, err := c.nodes.Commit(ctx, node, changed)
	if apierrors.IsNotFound(err) {
		return nil, nil //nolint:nilnil // nil means that it is gone
	}
	if err != nil {
		return nil, fmt.Errorf("write Node %s: %w", node.Name, err)
	}
	objectcache.Trim(written)
	return written, nil
}

// assign writes the assignments of the verdict, each in one patch with the end of the taint. The
// first error ends it: the others are decided on anew.
func (c *Controller) assign(ctx context.Context, p *pass) error {
	var names []string
	var failed error
	for _, a := range p.verdict.Assign {
		written, err := c.write(ctx, a.Node, func(node *corev1.Node) {
			metav1.SetMetaDataAnnotation(&node.ObjectMeta, c.cfg.Prefix.DesiredConfig(), a.Config)
			if node.Labels == nil {
				node.Labels = map[string]string{}
			}
			node.Labels[v1alpha1.LabelPool] = p.pool.Name
			node.Spec.Taints = slices.DeleteFunc(node.Spec.Taints, isUpdateInProgress)
		})
		if err != nil {
			failed = err
			break
		}
		if written != nil {
			klog.FromContext(ctx).Info("Assigned configuration to Node", telemetry.KeyNode, a.Node.Name, "config", a.Config)
			names = append(names, a.Node.Name)
		}
	}
	if len(names) > 0 {
		c.counts.assigned.Add(float64(len(names)))
		shown := strings.Join(names[:min(len(names), mostNames)], ", ")
		telemetry.Emit(ctx, c.cfg.Events, p.pool, machinev1alpha1.EventNodesAssigned,
			fmt.Sprintf("Assigned %s to %d Nodes: %s", p.verdict.Assign[0].Config, len(names), shown))
	}
	return failed
}

func isUpdateInProgress(t corev1.Taint) bool {
	return t.Key == v1alpha1.TaintUpdateInProgress && t.Effect == corev1.TaintEffectPreferNoSchedule
}

// taint adds and removes the taint UpdateInProgress, of Nodes that the verdict does not assign: an
// assignment ends the taint itself. It returns after what time it has to go on, 0 when it is done.
// A Node that has changed since is left to the pass that its change causes.
func (c *Controller) taint(ctx context.Context, p *pass) (again time.Duration, err error) {
	nodes := map[string]*corev1.Node{}
	for _, node := range p.world.Nodes {
		nodes[node.Name] = node
	}
	for _, a := range p.verdict.Assign {
		delete(nodes, a.Node.Name)
	}
	written := 0
	change := func(names []string, change func(node *corev1.Node)) error {
		for _, name := range names {
			if nodes[name] == nil {
				continue
			}
			if written == mostTaints {
				again = time.Millisecond
				return nil
			}
			written++
			if _, err := c.write(ctx, nodes[name], change); err != nil && !apierrors.IsConflict(err) {
				return err
			}
		}
		return nil
	}
	err = errors.Join(
		change(p.verdict.Taint, func(node *corev1.Node) { node.Spec.Taints = append(node.Spec.Taints, v1alpha1.UpdateInProgress()) }),
		change(p.verdict.Untaint, func(node *corev1.Node) { node.Spec.Taints = slices.DeleteFunc(node.Spec.Taints, isUpdateInProgress) }),
	)
	return again, err
}
