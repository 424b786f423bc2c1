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

// readLive reads the deployment, and the machines of its sets in one list however many there are
// and whichever labels they have, from the API server. What must not depend on how late the caches
// are is decided on that; the replicas that belong to the machines that the cluster-autoscaler has
// named, for example.
func (c *Controller) readLive(ctx context.Context, w *rollout.World) error {
	d, err := c.cfg.Machines.MachineDeployments(w.Deployment.Namespace).Get(ctx, w.Deployment.Name, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("read MachineDeployment %s: %w", w.Deployment.Name, err)
	}
	if d.UID != w.Deployment.UID {
		return fmt.Errorf("MachineDeployment %s/%s is another one now, with UID %s; expected %s", d.Namespace, d.Name, d.UID, w.Deployment.UID)
	}
	machines := map[types.UID][]*metav1.ObjectMeta{}
	err = c.metadata.Each(ctx, "machines", d.Namespace, "", func(m *metav1.PartialObjectMetadata) {
		if owner := metav1.GetControllerOfNoCopy(m); owner != nil {
			machines[owner.UID] = append(machines[owner.UID], &m.ObjectMeta)
		}
	})
	if err != nil {
		return err
	}
	c.deployments.Wrote(d) // until the cache shows it
	w.Deployment, w.MustListOrphans, w.Live = d, c.mustListOrphans(d), &rollout.Live{Machines: machines}
	return nil
}

// writeMarks writes the metadata of machines. When one has changed since it was read, or was
// deleted, live is not current any more.
func (c *Controller) writeMarks(
	ctx context.Context, live map[types.UID][]*metav1.ObjectMeta, desired []*v1alpha1.Machine,
) (isCurrent bool, err error) {
	for _, m := range desired {
		siblings := live[metav1.GetControllerOfNoCopy(m).UID]
		i := slices.IndexFunc(siblings, func(s *metav1.ObjectMeta) bool { return s.UID == m.UID })
		written, err := c.machines.Commit(ctx, &v1alpha1.Machine{ObjectMeta: *siblings[i]}, m)
		if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
			return false, nil
		}
		if err != nil {
			return true, err
		}
		siblings[i] = &written.ObjectMeta
	}
	return true, nil
}
