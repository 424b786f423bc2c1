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
)

// listMachines lists the metadata of machines from the API server.
func (c *Controller) listMachines(ctx context.Context, namespace string, options metav1.ListOptions) (*metav1.PartialObjectMetadataList, error) {
	list, err := c.cfg.Metadata.Resource(v1alpha1.SchemeGroupVersion.WithResource("machines")).Namespace(namespace).List(ctx, options)
	if err != nil {
		return nil, fmt.Errorf("list the machines of namespace %s: %w", namespace, err)
	}
	return list, nil
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
	list, err := c.listMachines(ctx, live.Namespace, metav1.ListOptions{LabelSelector: selector.String()})
	if err != nil {
		return err
	}
	c.deployments.Wrote(live) // until the cache shows it
	w.Deployment, w.MustLook = live, c.mustLook(live)
	w.LiveMachines = map[types.UID][]*v1alpha1.Machine{}
	for i := range list.Items {
		if owner := metav1.GetControllerOfNoCopy(&list.Items[i]); owner != nil {
			w.LiveMachines[owner.UID] = append(w.LiveMachines[owner.UID], &v1alpha1.Machine{ObjectMeta: list.Items[i].ObjectMeta})
		}
	}
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
