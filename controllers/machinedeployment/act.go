package machinedeployment

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machinedeployment/rollout"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/decode"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/ownerref"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/telemetry"
)

// act takes one action and records its result in the world.
func (c *Controller) act(ctx context.Context, w *rollout.World, verdict rollout.Verdict) error {
	switch verdict.Do {
	case rollout.Rest:
		return nil
	case rollout.Save:
		written, err := c.deployments.Commit(ctx, w.Deployment, verdict.Deployment)
		if err != nil {
			return err
		}
		logProgress(ctx, w.Deployment, written)
		w.Deployment, w.Done.Collided = written, false
		return nil
	case rollout.ListLive:
		return c.listLive(ctx, w)
	case rollout.CountOld:
		return c.countOld(ctx, w)
	case rollout.ReadLive:
		return c.readLive(ctx, w)
	case rollout.Mark:
		return c.writeMarks(ctx, w, verdict.Machines)
	case rollout.ListMachines:
		return c.listLiveMetadata(ctx, w)
	case rollout.WriteNodes:
		return c.writeNodes(ctx, w, verdict.Nodes)
	case rollout.WriteMachines:
		return c.writeMachines(ctx, w, verdict.Machines)
	case rollout.Adopt:
		return c.adopt(ctx, w, verdict.Sets)
	case rollout.Release:
		return c.release(ctx, w, verdict.Sets)
	case rollout.Create:
		return c.create(ctx, w, verdict.Sets[0])
	case rollout.Update:
		return c.update(ctx, w, verdict.Sets)
	case rollout.Delete:
		return c.delete(ctx, w, verdict.Sets)
	}
	return errors.New("rollout.Decide named an action that the controller does not know: " + string(verdict.Do))
}

// listLive lists the deployment's sets from the API server.
func (c *Controller) listLive(ctx context.Context, w *rollout.World) error {
	selector, err := metav1.LabelSelectorAsSelector(w.Deployment.Spec.Selector)
	if err != nil || w.Deployment.DeletionTimestamp != nil {
		selector = labels.Nothing() // an invalid selector is reported by rollout.Decide
	}
	live, released := map[types.UID]bool{}, 0
	var orphans []*metav1.PartialObjectMetadata
	err = c.list(ctx, "machinesets", w.Deployment.Namespace, "", func(set *metav1.PartialObjectMetadata) {
		owner := metav1.GetControllerOfNoCopy(set)
		if owner == nil && set.Annotations[v1alpha1.AnnotationReleasedBy] == string(w.Deployment.UID) && set.DeletionTimestamp == nil {
			released++
		}
		switch {
		case owner == nil && selector.Matches(labels.Set(set.Labels)):
			orphans = append(orphans, set)
		case owner != nil && owner.UID == w.Deployment.UID:
			live[set.UID] = true
		}
	})
	if err != nil {
		return err
	}
	w.Released = released
	for _, set := range orphans {
		if err := c.lookAgain(ctx, w, set); err != nil {
			return err
		}
	}
	w.Live, w.MustLook = live, false
	c.recordLive(w)
	return nil
}

// countOld counts the machines of the deployment's old sets at the API server: one list of metadata, whatever their number.
func (c *Controller) countOld(ctx context.Context, w *rollout.World) error {
	old := map[types.UID]bool{}
	for _, set := range w.Owned {
		old[set.UID] = !rollout.IsNewSet(w.Deployment, set)
	}
	count := 0
	err := c.listOwned(ctx, w.Deployment.Namespace, "", func(owner types.UID, _ *metav1.ObjectMeta) {
		if old[owner] {
			count++
		}
	})
	if err == nil {
		w.OldMachines = &count
	}
	return err
}

// lookAgain reads a set without a controller, which the selector matches, again, so that the deployment adopts its current version.
func (c *Controller) lookAgain(ctx context.Context, w *rollout.World, found metav1.Object) (err error) {
	w.Orphans, err = ownerref.LookAgain(w.Orphans, w.Done.Moved, found, func(name string) (*v1alpha1.MachineSet, error) {
		set, err := c.cfg.Machines.MachineSets(w.Deployment.Namespace).Get(ctx, name, metav1.GetOptions{})
		if failure, undecodable := decode.FailureOf(err); undecodable { // it is adopted by its metadata
			return &v1alpha1.MachineSet{ObjectMeta: failure.ObjectMeta}, nil
		}
		return set, err
	})
	return err
}

// follow records on a set that is written the trace of the write, so that what its own controller does next leads to the change of the
// deployment that it follows from.
func follow(ctx context.Context, set *v1alpha1.MachineSet) {
	parent := telemetry.Traceparent(ctx)
	if parent == "" {
		return
	}
	metav1.SetMetaDataAnnotation(&set.ObjectMeta, v1alpha1.AnnotationTraceparent, parent)
}

// create creates the new set. A set of the deployment that has the name and the template already was created by an earlier pass
// that has not observed it; any other set with the name is a collision.
func (c *Controller) create(ctx context.Context, w *rollout.World, set *v1alpha1.MachineSet) error {
	follow(ctx, set)
	ownerref.InSlotOf(set, w.Deployment)
	made, err := c.cfg.Machines.MachineSets(set.Namespace).Create(ctx, set, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		made, err = c.cfg.Machines.MachineSets(set.Namespace).Get(ctx, set.Name, metav1.GetOptions{})
		if other, undecodable := decode.FailureOf(err); undecodable && !metav1.IsControlledBy(other, w.Deployment) {
			return collide(w, set.Name)
		}
		if err == nil && !rollout.IsNewSet(w.Deployment, made) {
			return collide(w, set.Name)
		}
	}
	if err != nil {
		w.Done.CreateError = fmt.Sprintf("Failed to create new machine set %q: %v", set.Name, err)
		return fmt.Errorf("create MachineSet %s: %w", set.Name, err)
	}
	klog.FromContext(ctx).Info("Created MachineSet", telemetry.KeyMachineSet, klog.KObj(made), "revision", made.Annotations[v1alpha1.AnnotationRevision])
	w.Owned = append(w.Owned, made)
	c.made(w.Deployment.UID, made.UID)
	return nil
}

// collide records that the name of the new set belongs to another set.
func collide(w *rollout.World, name string) error {
	if why, drifts := rollout.Drifts(*w); drifts {
		w.Done.CreateError = fmt.Sprintf("Failed to create new machine set %q: %s", name, why)
		return fmt.Errorf("create MachineSet %s: %s", name, why)
	}
	w.Done.Collided = true
	return nil
}

// update writes sets.
func (c *Controller) update(ctx context.Context, w *rollout.World, desired []*v1alpha1.MachineSet) error {
	for _, set := range desired {
		i := slices.IndexFunc(w.Owned, func(s *v1alpha1.MachineSet) bool { return s.UID == set.UID })
		if i < 0 {
			continue
		}
		if concerns(w.Owned[i], set) {
			set = set.DeepCopy()
			follow(ctx, set)
			if c.cfg.Foresee != nil {
				set = c.cfg.Foresee(ctx, set, rollout.Fades(w.Deployment, w.Owned[i], set))
			}
		}
		written, err := c.sets.Commit(ctx, w.Owned[i], set)
		if err != nil {
			return err
		}
		w.Owned[i] = written
	}
	c.observeMachines(w) // w.Machines must not be older than the machines for which Foresee has removed intents
	return nil
}

// concerns reports whether the set's own controller has to write intents for the change, too: the replicas have changed, or the
// machines have begun or ended to be replaced.
func concerns(before, after *v1alpha1.MachineSet) bool {
	return before.Spec.Replicas != after.Spec.Replicas ||
		before.Annotations[v1alpha1.AnnotationRolling] != after.Annotations[v1alpha1.AnnotationRolling]
}

// delete deletes sets. A set that has changed since it was observed is left to the next pass.
func (c *Controller) delete(ctx context.Context, w *rollout.World, sets []*v1alpha1.MachineSet) error {
	for _, set := range sets {
		err := c.cfg.Machines.MachineSets(set.Namespace).Delete(ctx, set.Name, metav1.DeleteOptions{
			Preconditions: &metav1.Preconditions{UID: &set.UID, ResourceVersion: &set.ResourceVersion},
		})
		if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
			return fmt.Errorf("delete MachineSet %s: %w", set.Name, err)
		}
		if err == nil {
			klog.FromContext(ctx).Info("Deleted MachineSet", telemetry.KeyMachineSet, klog.KObj(set), "revision", set.Annotations[v1alpha1.AnnotationRevision])
		}
		w.Done.Deleted[set.UID] = true // also when it was rejected because the set has changed: the event of that change starts the next pass
	}
	return nil
}

// adopt makes the deployment the controller of sets, after a live read has confirmed that the deployment exists.
func (c *Controller) adopt(ctx context.Context, w *rollout.World, sets []*v1alpha1.MachineSet) error {
	live, err := c.cfg.Machines.MachineDeployments(w.Deployment.Namespace).Get(ctx, w.Deployment.Name, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("read MachineDeployment %s before it adopts: %w", w.Deployment.Name, err)
	}
	if err := ownerref.MayAdopt(w.Deployment, live); err != nil {
		return err
	}
	w.Live = nil // the list is older than the adoptions
	changed, err := ownerref.Rewrite(ctx, c.sets.Commit, sets, w.Done.Moved, func(s *v1alpha1.MachineSet) {
		ownerref.Adopt(s, w.Deployment, v1alpha1.SchemeGroupVersion.WithKind("MachineDeployment"))
	})
	w.Done.Contest, w.MustLook = w.Done.Contest.Next(changed)
	return err
}

// release removes the deployment's owner reference from sets.
func (c *Controller) release(ctx context.Context, w *rollout.World, sets []*v1alpha1.MachineSet) error {
	released, err := ownerref.ReleaseAll(ctx, c.sets.Commit, sets, w.Done.Moved, w.Deployment)
	if len(released) > 0 && w.Deployment.DeletionTimestamp == nil {
		telemetry.Emit(ctx, c.cfg.Events, w.Deployment, v1alpha1.EventReleased, fmt.Sprintf(
			"Released %d MachineSets, because their labels do not match the selector any more; they keep their machines: %s", len(released), strings.Join(released, ", ")))
	}
	return err
}
