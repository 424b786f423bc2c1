package machine

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	machineclient "github.com/machine-controller-fleet/machine-controller-fleet/client/clientset/versioned/typed/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machine/lifecycle"
	"github.com/machine-controller-fleet/machine-controller-fleet/driver"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/decode"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/nodeowner"
)

// claimants find machines with an older claim to a Node or a VM.
type claimants struct {
	machines  machineclient.MachinesGetter
	namesakes *namesakes // of machines, in other namespaces
	memory    *machineMemory
	own       clock.PassiveClock // of the process
}

// claimsKept is how long the conflicting claims to a Node are remembered. The kubelet can remove
// the Node's binding without limit; if they were not remembered, each removal would cost a list of
// the machines of all namespaces.
const claimsKept = 30 * time.Second

// nodeClaims are the conflicting claims to a Node as they were found.
type nodeClaims struct {
	node  types.UID
	at    time.Time
	found lifecycle.OtherClaims
}

// findOfNode looks for machines with an older claim to the Node: those that name the Node, and to
// which it is tied as it is to this one. It reads from the API server; caches show only machines in
// the slots of this process.
func (c *claimants) findOfNode(ctx context.Context, p *pass) (err error) {
	m, node := p.world.Machine, p.world.Node.Node
	if known := c.memory.of(m.UID).claims; known.node == node.UID && c.own.Since(known.at) < claimsKept {
		p.world.NodeClaims = known.found
		return nil
	}
	p.world.NodeClaims, err = c.find(ctx, m, labels.Set{v1alpha1.LabelNode: node.Name}, func(other *v1alpha1.Machine) bool {
		return nodeowner.Relate(other, node) == nodeowner.Tied
	})
	if err != nil {
		return fmt.Errorf("look for other machines of Node %s: %w", node.Name, err)
	}
	found := nodeClaims{node: node.UID, at: c.own.Now(), found: p.world.NodeClaims}
	c.memory.change(m.UID, func(is *remembered) { is.claims = found })
	return nil
}

// findOfVM looks in the same way for machines with an older claim to the VM: those whose provider
// ID may name it.
func (c *claimants) findOfVM(ctx context.Context, p *pass) (err error) {
	m := p.world.Machine
	p.world.VMClaims, err = c.find(ctx, m, nil, func(other *v1alpha1.Machine) bool {
		return driver.MayNameOneVM(other.Spec.ProviderID, m.Spec.ProviderID)
	})
	if err != nil {
		return fmt.Errorf("look for other machines of VM %s: %w", m.Spec.ProviderID, err)
	}
	return nil
}

// find looks for machines of the same name in other namespaces that are not younger and claim the
// same Node or VM: Machine Controller Manager identifies both by that name. A machine that cannot
// be decoded may claim it, and counts as a claimant. The names of claimants are logged, and not
// reported on the machine: its author may have no access to their namespaces.
func (c *claimants) find(
	ctx context.Context, m *v1alpha1.Machine, which labels.Set, claims func(*v1alpha1.Machine) bool,
) (lifecycle.OtherClaims, error) {
	namesakes, err := c.namesakes.of(ctx, m, which)
	if err != nil {
		return lifecycle.OtherClaims{}, err
	}
	var found []string
	for _, other := range nodeowner.OtherClaimants(m, namesakes) {
		full, err := c.machines.Machines(other.Namespace).Get(ctx, other.Name, metav1.GetOptions{})
		_, undecodable := decode.FailureOf(err)
		switch {
		case apierrors.IsNotFound(err):
		case err != nil && !undecodable:
			return lifecycle.OtherClaims{}, fmt.Errorf("read machine %s/%s, which may claim the same: %w", other.Namespace, other.Name, err)
		case undecodable || claims(full):
			found = append(found, other.Namespace+"/"+other.Name)
		}
	}
	if len(found) > 0 {
		klog.FromContext(ctx).Info("Found other machines with an older claim", "number", len(found),
			"claimants", found[:min(len(found), claimantsLogged)])
	}
	return lifecycle.OtherClaims{Read: true, Found: len(found) > 0}, nil
}

// claimantsLogged is how many claimants a log line names.
const claimantsLogged = 3
