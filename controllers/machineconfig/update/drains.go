package update

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/fleet/v1alpha1"
	machinev1alpha1 "github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machineconfig/update/candidates"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/bounded"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/drainer"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/drainer/drain"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/machinefacts"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/telemetry"
)

// aim is that of the drains of this package.
const aim = drainer.ForConfig

// mostReport is how many bytes of the report of a drain the pool's condition has.
const mostReport = 300

// drains are those that this process continues for pools. Its content may be lost at any time.
type drains struct {
	mu    sync.Mutex
	known map[types.UID]draining // by Node
}

// draining is the drain of a Node.
type draining struct {
	pool, node string
	report     drain.Report
}

func newDrains() *drains { return &drains{known: map[types.UID]draining{}} }

// add records that the drain of a Node is continued here.
func (d *drains) add(node types.UID, is draining) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, known := d.known[node]; !known {
		d.known[node] = is
	}
}

// report records how far the drain of a Node is, and reports whether it has become stuck.
func (d *drains) report(node types.UID, is draining) (isStuckNow bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	before := d.known[node]
	d.known[node] = is
	return is.report.IsStuck && !before.report.IsStuck
}

// forget forgets the drain of a Node.
func (d *drains) forget(node types.UID) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.known, node)
}

// reports returns sentences about the drains of a pool's Nodes, by the name of the Node.
func (d *drains) reports(pool string) map[string]string {
	d.mu.Lock()
	defer d.mu.Unlock()
	all := map[string]string{}
	for _, is := range d.known {
		if is.pool == pool && is.report.Text != "" {
			all[is.node] = bounded.Text(is.report.Text, mostReport)
		}
	}
	return all
}

// leave forgets the drains of a pool but those of some Nodes, and returns the Nodes of the others.
func (d *drains) leave(pool string, but ...types.UID) (nodes []types.UID) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for node, is := range d.known {
		if is.pool == pool && !slices.Contains(but, node) {
			nodes = append(nodes, node)
			delete(d.known, node)
		}
	}
	return nodes
}

// leaveAll forgets all drains, and returns their Nodes.
func (d *drains) leaveAll() (nodes []types.UID) {
	d.mu.Lock()
	defer d.mu.Unlock()
	nodes = slices.Collect(maps.Keys(d.known))
	clear(d.known)
	return nodes
}

// ownerOf returns the owner of the drain of a Node. The UIDs of Nodes are those that an API server
// says: two may say the same.
func (c *Controller) ownerOf(node types.UID) types.UID {
	if c.cfg.Cluster.Name == "" {
		return node
	}
	return types.UID(c.cfg.Cluster.Name) + "/" + node
}

// namespaceOf returns the namespace that the drains and updates of a pool count for.
func (c *Controller) namespaceOf(pool *v1alpha1.MachineConfigPool) string {
	if ref := pool.Spec.MachineRef; ref != nil {
		return ref.Namespace
	}
	return c.cfg.Cluster.Name
}

// answer carries out what daemons request, and drops the drains that are not requested any more. It
// returns after what time a drain has to be continued; 0 when an event wakes it. Errors: those of
// all Nodes; one Node does not keep the others waiting.
func (c *Controller) answer(ctx context.Context, p *pass) (wake time.Duration, err error) {
	var errs []error
	var wanted []types.UID
	for _, r := range p.verdict.Requests {
		switch r.Do {
		case candidates.Uncordon:
			errs = append(errs, c.uncordon(ctx, r))
		case candidates.Drain:
			wanted = append(wanted, r.Node.UID)
			again, err := c.drain(ctx, p, r)
			wake, errs = machinefacts.Sooner(wake, again), append(errs, err)
		case candidates.Wait, candidates.Refuse: // the condition Updating has the cause
			wake = machinefacts.Sooner(wake, r.Again)
		}
	}
	for _, node := range c.drains.leave(p.pool.Name, wanted...) {
		c.cfg.Drains.Drop(c.ownerOf(node), aim)
	}
	return wake, errors.Join(errs...)
}

// uncordon ends the cordon of a drain, if it is the fleet's, and answers the request in the same
// write.
func (c *Controller) uncordon(ctx context.Context, r candidates.Request) error {
	_, err := c.write(ctx, r.Node, func(node *corev1.Node) {
		if _, ours := node.Annotations[v1alpha1.AnnotationCordonedBy]; ours {
			machinefacts.Uncordon(node)
		}
		delete(node.Annotations, v1alpha1.AnnotationCordonedBy)
		delete(node.Annotations, v1alpha1.AnnotationDrainSince)
		metav1.SetMetaDataAnnotation(&node.ObjectMeta, c.cfg.Prefix.LastAppliedDrain(), r.Value)
	})
	return err
}

// begin cordons a Node and records since when it is drained and, unless it was cordoned before,
// that the cordon is the fleet's. It returns the Node as written; nil when it is gone.
func (c *Controller) begin(ctx context.Context, pool string, node *corev1.Node) (*corev1.Node, error) {
	return c.write(ctx, node, func(node *corev1.Node) {
		if node.Annotations[v1alpha1.AnnotationDrainSince] == "" {
			metav1.SetMetaDataAnnotation(&node.ObjectMeta, v1alpha1.AnnotationDrainSince, c.cfg.Clock.Now().UTC().Format(time.RFC3339))
		}
		if node.Spec.Unschedulable {
			return
		}
		metav1.SetMetaDataAnnotation(&node.ObjectMeta, v1alpha1.AnnotationCordonedBy, pool)
		machinefacts.Cordon(node)
	})
}

// drain begins or continues the drain of a Node, and answers the request when it has ended.
func (c *Controller) drain(ctx context.Context, p *pass, r candidates.Request) (wake time.Duration, err error) {
	node := r.Node
	if r.Begins() {
		if node, err = c.begin(ctx, p.pool.Name, node); err != nil || node == nil {
			return 0, err
		}
	}
	pool, owner := p.pool.Name, c.ownerOf(node.UID)
	d := c.cfg.Drains.Of(owner, aim)
	is := draining{pool: pool, node: node.Name}
	c.drains.add(node.UID, is)
	now := c.cfg.Clock.Now() // before what is known of the API servers
	order := drain.ForConfiguration(p.sight.machines[node.Name], c.since(node), c.cfg.Drain).Under(c.cfg.Servers.Under(c.cfg.Cluster), now)
	v, isSame, err := d.Continue(ctx, drainer.Task{
		Owner: drainer.Owner{
			UID: owner, Namespace: c.namespaceOf(p.pool), Wake: func() { c.runner.Enqueue(types.NamespacedName{Name: pool}) },
		},
		Node: node, Cluster: c.cfg.Cluster, Order: order,
		Cordon: func(ctx context.Context) (_ *corev1.Node, err error) {
			node, err = c.begin(ctx, pool, node)
			return node, err
		},
		Warn: func(ctx context.Context, message string) {
			telemetry.Emit(ctx, c.cfg.Events, p.pool, machinev1alpha1.EventEvictionTimedOut, message)
		},
	})
	if err != nil || !isSame {
		return 0, err
	}
	d.Reported, is.report = d.Reported.NextForUpdate(now, v)
	if is.report.State.Ended() {
		return 0, c.drained(ctx, p, r, node, v, is.report)
	}
	if c.drains.report(node.UID, is) {
		telemetry.Emit(ctx, c.cfg.Events, p.pool, machinev1alpha1.EventNodeDrainBlocked, is.report.Text)
	}
	return is.report.Wake, nil
}

// since returns since when a Node is drained. What cannot be read, or is in the future, is now: the
// kubelet of the Node can write it.
func (c *Controller) since(node *corev1.Node) time.Time {
	now := c.cfg.Clock.Now()
	since, err := time.Parse(time.RFC3339, node.Annotations[v1alpha1.AnnotationDrainSince])
	if err != nil || since.After(now) {
		return now
	}
	return since
}

// drained answers the request for a drain that has ended.
func (c *Controller) drained(
	ctx context.Context, p *pass, r candidates.Request, node *corev1.Node, v drain.Verdict, report drain.Report,
) error {
	_, err := c.write(ctx, node, func(node *corev1.Node) {
		metav1.SetMetaDataAnnotation(&node.ObjectMeta, c.cfg.Prefix.LastAppliedDrain(), r.Value)
		delete(node.Annotations, v1alpha1.AnnotationDrainSince)
	})
	if err != nil {
		return err
	}
	c.counts.drained.WithLabelValues(resultOf(v)).Inc()
	if v.State != drain.Drained {
		telemetry.Emit(ctx, c.cfg.Events, p.pool, machinev1alpha1.EventNodeDrainForced, fmt.Sprintf("%s; %s follows", report.Text, r.Value))
	}
	c.cfg.Drains.Drop(c.ownerOf(node.UID), aim)
	c.drains.forget(node.UID)
	return nil
}

// resultOf names the result of a drain in metrics.
func resultOf(v drain.Verdict) string {
	if v.State == drain.Drained {
		return resultDrained
	}
	return resultForced
}
