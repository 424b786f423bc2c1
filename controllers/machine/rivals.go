package machine

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/klog/v2"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machine/lifecycle"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/nodeowner"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/decode"
)

// findNodeRivals looks, past all caches, which show only machines of our own slots, for machines with an older claim to the
// Node: those that name it.
func (c *Controller) findNodeRivals(ctx context.Context, p *pass) error {
	name := p.world.Node.Node.Name
	claimants, err := c.listMachines(ctx, metav1.ListOptions{LabelSelector: labels.Set{v1alpha1.LabelNode: name}.String()})
	if err != nil {
		return fmt.Errorf("look for other machines of Node %s: %w", name, err)
	}
	p.world.NodeRivals = rivals(ctx, p.world.Machine, claimants)
	return nil
}

// findVMRivals looks in the same way for machines with an older claim to the VM: those of the same name, by which Machine
// Controller Manager knows VMs, that have its provider ID. One that cannot be decoded may have it.
func (c *Controller) findVMRivals(ctx context.Context, p *pass) error {
	m := p.world.Machine
	namesakes, err := c.listMachines(ctx, metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, m.Name).String()})
	if err != nil {
		return fmt.Errorf("look for other machines of VM %s: %w", m.Spec.ProviderID, err)
	}
	var claimants []*metav1.PartialObjectMetadata
	for _, other := range namesakes {
		if other.Name != m.Name || other.UID == m.UID {
			continue
		}
		full, err := c.cfg.Machines.Machines(other.Namespace).Get(ctx, other.Name, metav1.GetOptions{})
		_, undecodable := decode.FailureOf(err)
		switch {
		case apierrors.IsNotFound(err):
		case err != nil && !undecodable:
			return fmt.Errorf("read machine %s/%s, which may have the same VM: %w", other.Namespace, other.Name, err)
		case undecodable || full.Spec.ProviderID == m.Spec.ProviderID:
			claimants = append(claimants, other)
		}
	}
	p.world.VMRivals = rivals(ctx, m, claimants)
	return nil
}

// listMachines lists machines of all namespaces that are served.
func (c *Controller) listMachines(ctx context.Context, which metav1.ListOptions) (found []*metav1.PartialObjectMetadata, err error) {
	machines := c.cfg.Metadata.Resource(v1alpha1.SchemeGroupVersion.WithResource("machines")).Namespace(c.cfg.Namespace)
	list, err := machines.List(ctx, which)
	if err != nil {
		return nil, err
	}
	for i := range list.Items {
		found = append(found, &list.Items[i])
	}
	return found, nil
}

// rivals is what claimants come to. Their names are logged, and not told: they may be of namespaces that the machine's author
// must not see.
func rivals(ctx context.Context, m *v1alpha1.Machine, claimants []*metav1.PartialObjectMetadata) lifecycle.Rivals {
	found := nodeowner.Rivals(m, claimants)
	if len(found) > 0 {
		klog.FromContext(ctx).Info("Other machines have an older claim", "rivals", found)
	}
	return lifecycle.Rivals{Read: true, Found: len(found) > 0}
}
