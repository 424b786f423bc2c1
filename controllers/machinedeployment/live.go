package machinedeployment

import (
	"context"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machinedeployment/rollout"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/decode"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/pages"
)

// lists is the maximum number of concurrent lists. For each, the API server reads all objects of a kind in a namespace.
const lists = 4

// list lists the metadata of a resource in a namespace from the API server, and calls visit with each object.
func (c *Controller) list(ctx context.Context, resource, namespace, selector string, visit func(*metav1.PartialObjectMetadata)) error {
	select {
	case c.listing <- struct{}{}:
		defer func() { <-c.listing }()
	case <-ctx.Done():
		return ctx.Err()
	}
	all := c.cfg.Metadata.Resource(v1alpha1.SchemeGroupVersion.WithResource(resource)).Namespace(namespace)
	options := metav1.ListOptions{LabelSelector: selector}
	return pages.Until(ctx, "the "+resource+" of namespace "+namespace, options, all.List,
		func(page *metav1.PartialObjectMetadataList, _ []*decode.Failure) bool {
			for i := range page.Items {
				visit(&page.Items[i])
			}
			return false
		})
}

// listOwned lists the metadata of the machines of a namespace that have a controller, and calls visit with each.
func (c *Controller) listOwned(ctx context.Context, namespace, selector string, visit func(owner types.UID, m *metav1.ObjectMeta)) error {
	return c.list(ctx, "machines", namespace, selector, func(m *metav1.PartialObjectMetadata) {
		if owner := metav1.GetControllerOfNoCopy(m); owner != nil {
			visit(owner.UID, &m.ObjectMeta)
		}
	})
}

// readLive reads the deployment, and the machines of its sets in one list whatever their number, from the API server. Actions
// on machines that the cluster-autoscaler has named are decided on that: the caches may show other replicas than those that
// belong to the names.
func (c *Controller) readLive(ctx context.Context, w *rollout.World) error {
	live, err := c.cfg.Machines.MachineDeployments(w.Deployment.Namespace).Get(ctx, w.Deployment.Name, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("read MachineDeployment %s: %w", w.Deployment.Name, err)
	}
	if live.UID != w.Deployment.UID {
		return fmt.Errorf("MachineDeployment %s/%s is another one now, with UID %s; expected %s", live.Namespace, live.Name, live.UID, w.Deployment.UID)
	}
	selector, err := metav1.LabelSelectorAsSelector(live.Spec.Selector)
	if err != nil {
		return fmt.Errorf("spec.selector of MachineDeployment %s: %w", live.Name, err)
	}
	machines := map[types.UID][]*v1alpha1.Machine{}
	err = c.listOwned(ctx, live.Namespace, selector.String(), func(owner types.UID, m *metav1.ObjectMeta) {
		machines[owner] = append(machines[owner], &v1alpha1.Machine{ObjectMeta: *m})
	})
	if err != nil {
		return err
	}
	c.deployments.Wrote(live) // until the cache shows it
	w.Deployment, w.MustLook = live, c.mustLook(live)
	w.LiveMachines = machines
	return nil
}

// writeMarks writes the metadata of machines. When one has changed since it was read, or was deleted, all are read again.
func (c *Controller) writeMarks(ctx context.Context, w *rollout.World, desired []*v1alpha1.Machine) error {
	for _, m := range desired {
		siblings := w.LiveMachines[metav1.GetControllerOfNoCopy(m).UID]
		i := slices.IndexFunc(siblings, func(s *v1alpha1.Machine) bool { return s.UID == m.UID })
		written, err := c.machines.Commit(ctx, siblings[i], m)
		if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
			w.LiveMachines = nil
			return nil
		}
		if err != nil {
			return err
		}
		siblings[i] = &v1alpha1.Machine{ObjectMeta: written.ObjectMeta}
	}
	return nil
}
