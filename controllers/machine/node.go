package machine

import (
	"cmp"
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machine/lifecycle"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machine/nodesync"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/decode"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/deletion"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/deletion/receipt"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/machinefacts"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/nodeowner"
)

// nodes read and write the Nodes of machines.
type nodes struct {
	clock  clock.PassiveClock
	own    clock.PassiveClock // of the process
	memory *machineMemory
	writes *nodeWriteLimit
	claims *memory[types.NamespacedName, claim] // that the cache does not show yet, by the keys of Nodes
	// isUnlabeled is that of Config.
	isUnlabeled func(name string) bool
	unbound     unbound // Nodes that are bound to no machine
	events      events.EventRecorder
	deletions   *deletion.Recorder
}

func newNodes(cfg Config, own clock.PassiveClock, remembered *machineMemory) *nodes {
	return &nodes{
		clock: cfg.Clock, own: own, memory: remembered, writes: newNodeWriteLimit(),
		claims: newMemory[types.NamespacedName, claim](), isUnlabeled: cfg.IsUnlabeled, events: cfg.Events, deletions: cfg.Deletions,
	}
}

// find reads the Node from the API server: by its name, or by its machine if no name is known.
func (n *nodes) find(ctx context.Context, p *pass) error {
	name := cmp.Or(lifecycle.NodeName(p.world.Machine), p.world.VM.NodeName)
	if name == "" {
		return n.findByMachine(ctx, p)
	}
	node, err := p.cluster.Client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		n.claims.forget(p.cluster.Key(name))
		p.world.Node = lifecycle.NodeFact{State: lifecycle.NodeAbsent}
		return n.findElsewhere(ctx, p)
	case err != nil:
		return fmt.Errorf("read Node %s: %w", name, err)
	default:
		n.note(p, node)
		p.world.Node.Live = true
	}
	return nil
}

// delete removes our finalizer from the Node and deletes the Node. It removes the finalizer whether
// or not the cache shows it, unless that was done when the Node got its condition: a cache that
// does not show it yet does not prove its absence, and a Node that is deleted with it would remain
// permanently.
func (n *nodes) delete(ctx context.Context, p *pass, why receipt.Reason) error {
	node := p.world.Node.Node
	if node.UID == "" || n.memory.of(p.world.Machine.UID).released != node.UID {
		patched, err := n.patch(ctx, p, &nodesync.Patch{Body: map[string]any{"metadata": withoutFinalizer()}})
		if err != nil || !patched {
			return err
		}
	}
	_, err := n.deletions.Delete(ctx, n.events, deletionOfNode(p, node, why), func(ctx context.Context) error {
		return p.cluster.Client.CoreV1().Nodes().
			Delete(ctx, node.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &node.UID}})
	})
	if apierrors.IsConflict(err) { // another Node has the name now
		return n.find(ctx, p)
	}
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete Node %s: %w", node.Name, err)
	}
	p.world.Node = lifecycle.NodeFact{State: lifecycle.NodeAbsent}
	return nil
}

// withoutFinalizer returns the metadata of a patch that removes our finalizer from a Node, if it is
// there.
func withoutFinalizer() map[string]any {
	return map[string]any{"$deleteFromPrimitiveList/finalizers": []string{v1alpha1.NodeFinalizerName}}
}

// deletionOfNode returns the deletion of the machine's Node.
func deletionOfNode(p *pass, node *corev1.Node, why receipt.Reason) deletion.Deletion {
	m := p.world.Machine
	return deletion.Deletion{
		Object: receipt.Object{
			Kind:       receipt.Node,
			Namespace:  m.Namespace,
			Name:       node.Name,
			UID:        node.UID,
			ProviderID: node.Spec.ProviderID,
			Machine:    m.Name,
			MachineUID: m.UID,
		},
		Reason: why, About: []runtime.Object{m},
	}
}

// bytesOfNamed bounds the answers with the Nodes that name one machine, of a cluster that belongs
// to a namespace: its API server may send any.
const bytesOfNamed = 16 << 20

// findByMachine looks for the Node of a machine for which no Node name is known, by the label on
// the Node that names its machine.
func (n *nodes) findByMachine(ctx context.Context, p *pass) error {
	m := p.world.Machine
	found := lifecycle.NodeFact{State: lifecycle.NodeAbsent}
	named := metav1.ListOptions{LabelSelector: v1alpha1.LabelMachineName + "=" + m.Name}
	reading := ctx
	if p.cluster.Name != "" {
		reading = decode.AtMost(ctx, bytesOfNamed)
	}
	err := decode.UntilPage(reading, "Nodes", named, p.cluster.Client.CoreV1().Nodes().List,
		func(page *corev1.NodeList, _ []*decode.Failure) bool {
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

// nameOfOwn returns the name of the Node that counts as the machine's: that of a Node that is bound
// to the machine, where the cache shows one and what is named is not the machine's. Anyone who can
// write Machines can name any Node, and without its own a machine's VM would be deleted undrained.
func nameOfOwn(p *pass, named string) string {
	m := p.world.Machine
	if node, known := p.cluster.Nodes.Get(types.NamespacedName{Name: named}); known && nodeowner.Relate(m, node) != nodeowner.Foreign {
		return named
	}
	for _, node := range p.cluster.NodesOf(m) {
		if nodeowner.Relate(m, node) == nodeowner.Own {
			return node.Name
		}
	}
	return named
}

// observe records the Node in the world as the cache shows it or, until then, as it was claimed.
func (n *nodes) observe(p *pass, name string) {
	p.world.Node = lifecycle.NodeFact{}
	if name == "" || p.cluster == nil {
		return
	}
	name = nameOfOwn(p, name)
	if node, known := p.cluster.Nodes.Get(types.NamespacedName{Name: name}); known {
		n.claims.forget(p.cluster.Key(name))
		n.note(p, p.cluster.Written.Newest(node))
		return
	}
	if claim := n.claims.of(p.cluster.Key(name)); claim.node != nil {
		if n.own.Since(claim.at) < machinefacts.LateCache {
			n.note(p, p.cluster.Written.Newest(claim.node))
			return
		}
		n.claims.forget(p.cluster.Key(name))
	}
	if n.isUnlabeled != nil && n.isUnlabeled(name) {
		p.world.Node.State = lifecycle.NodeNamed
	}
}
