package machine

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/driver"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/decode"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/pacing"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/target"
)

// unboundKept is for how long a list of Nodes that are bound to no machine is used, by all machines
// that await their Nodes.
const unboundKept = 30 * time.Second

// unbound has the Nodes of the target cluster that were bound to no machine and in no slot when
// they were listed last.
type unbound struct {
	turn    pacing.Mutex // locked while Nodes are listed
	cluster *target.Cluster
	begun   time.Time         // when the list was begun
	ids     map[string]string // provider IDs by name
}

// nameOf returns the name of a Node that has a provider ID and is bound to no machine; "" when
// there is none. Errors: the list, the end of ctx.
func (u *unbound) nameOf(ctx context.Context, cluster *target.Cluster, providerID string, now func() time.Time) (string, error) {
	if cluster.Name != "" { // the cache has all Nodes
		return named(providerID, unboundIn(cluster.Nodes.All())), nil
	}
	if err := u.turn.LockContext(ctx); err != nil {
		return "", err
	}
	defer u.turn.Unlock()
	if u.cluster != cluster || now().Sub(u.begun) >= unboundKept {
		begun := now()
		ids, err := listUnbound(ctx, cluster)
		if err != nil {
			return "", err
		}
		u.cluster, u.begun, u.ids = cluster, begun, ids
	}
	return named(providerID, u.ids), nil
}

// listUnbound returns the provider IDs of Nodes that are in no slot and bound to no machine, by
// name. Errors: the list.
func listUnbound(ctx context.Context, cluster *target.Cluster) (map[string]string, error) {
	list := func(ctx context.Context, options metav1.ListOptions) (*corev1.NodeList, error) {
		options.LabelSelector = "!" + v1alpha1.LabelSlot
		return cluster.Client.CoreV1().Nodes().List(ctx, options)
	}
	ids := map[string]string{}
	err := decode.EachPage(ctx, "Nodes in no slot", list, func(page *corev1.NodeList) {
		for i := range page.Items {
			addUnbound(ids, &page.Items[i])
		}
	})
	return ids, err
}

// unboundIn returns the provider IDs of Nodes that are bound to no machine, by name.
func unboundIn(nodes []*corev1.Node) map[string]string {
	ids := map[string]string{}
	for _, node := range nodes {
		addUnbound(ids, node)
	}
	return ids
}

func addUnbound(ids map[string]string, node *corev1.Node) {
	if node.Spec.ProviderID != "" && node.Annotations[v1alpha1.AnnotationMachine] == "" {
		ids[node.Name] = node.Spec.ProviderID
	}
}

// named returns the name of a Node with a provider ID; "" when there is none.
func named(providerID string, ids map[string]string) string {
	for name, id := range ids {
		if driver.IdenticalVM(providerID, id) {
			return name
		}
	}
	return ""
}

// findElsewhere looks for a Node of the machine's VM under another name than the one that is
// awaited. Without proof that the VM is the machine's it does not: a status must not show the names
// of other Nodes.
func (n *nodes) findElsewhere(ctx context.Context, p *pass) error {
	m := p.world.Machine
	if m.Status.CurrentStatus.Phase != v1alpha1.MachinePending || p.world.Proven == "" || p.world.Proven != m.Spec.ProviderID {
		return nil
	}
	name, err := n.unbound.nameOf(ctx, p.cluster, p.world.Proven, n.own.Now)
	p.world.Node.Elsewhere = name
	return err
}
