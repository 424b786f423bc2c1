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
func (c *Controller) act(ctx context.Context, w *rollout.World, verdict rollout.Verdict) (err error) {
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
	case rollout.ListSets:
		return c.listSets(ctx, w)
	case rollout.ReadLive:
		return c.readLive(ctx, w)
	case rollout.Mark:
		isCurrent, err := c.writeMarks(ctx, w.Live.Machines, verdict.Machines)
		if !isCurrent {
			w.Live = nil
		}
		return err
	case rollout.WriteNodes:
		return c.writeNodes(ctx, w.Deployment.Namespace, w.Nodes, verdict.Nodes)
	case rollout.WriteMachines:
		w.Live = nil // it is older than these writes
		return c.writeMachines(ctx, w.Machines, verdict.Machines)
	case rollout.Adopt:
		w.LiveSets = nil // the list is older than the adoptions
		changed, err := c.adopt(ctx, w.Deployment, verdict.Sets, w.Done.Moved)
		w.Done.AdoptionRace, w.MustListOrphans = w.Done.AdoptionRace.Next(changed)
		return err
	case rollout.Release:
		return c.release(ctx, w.Deployment, verdict.Sets, w.Done.Moved)
	case rollout.Create:
		return c.create(ctx, w, verdict.Sets[0])
	case rollout.Update:
		return c.update(ctx, w, verdict.Sets)
	case rollout.Delete:
		return c.delete(ctx, verdict.Sets, w.Done.Deleted)
	}
	return errors.New("rollout.Decide named an action that the controller does not know: " + string(verdict.Do))
}

// listSets lists the deployment's sets from the API server.
func (c *Controller) listSets(ctx context.Context, w *rollout.World) error {
	d := w.Deployment
	selector, err := metav1.LabelSelectorAsSelector(d.Spec.Selector)
	if err != nil || d.DeletionTimestamp != nil {
		selector = labels.Nothing() // an invalid selector is reported by rollout.Decide
	}
	live, released := map[types.UID]bool{}, 0
	var orphans []*metav1.PartialObjectMetadata
	err = c.metadata.Each(ctx, "machinesets", d.Namespace, "", func(set *metav1.PartialObjectMetadata) {
		owner := metav1.GetControllerOfNoCopy(set)
		if owner == nil && set.Annotations[v1alpha1.AnnotationReleasedBy] == string(d.UID) && set.DeletionTimestamp == nil {
			released++
		}
		switch {
		case owner == nil && selector.Matches(labels.Set(set.Labels)):
			orphans = append(orphans, set)
		case owner != nil && owner.UID == d.UID:
			live[set.UID] = true
		}
	})
	if err != nil {
		return err
	}
	for _, set := range orphans {
		if w.Orphans, err = c.readAgain(ctx, w.Orphans, w.Done.Moved, set); err != nil {
			return err
		}
	}
	w.LiveSets, w.Released, w.MustListOrphans = live, released, false
	c.recordLive(d.UID, live, w.Owned)
	return nil
}

// readAgain reads a set without a controller, which the selector matches, again, so that the
// deployment adopts its current version.
func (c *Controller) readAgain(
	ctx context.Context, orphans []*v1alpha1.MachineSet, moved map[types.UID]bool, found metav1.Object,
) ([]*v1alpha1.MachineSet, error) {
	return ownerref.LookAgain(orphans, moved, found, func(name string) (*v1alpha1.MachineSet, error) {
		set, err := c.cfg.Machines.MachineSets(found.GetNamespace()).Get(ctx, name, metav1.GetOptions{})
		if failure, undecodable := decode.FailureOf(err); undecodable { // it is adopted by its metadata
			return &v1alpha1.MachineSet{ObjectMeta: failure.ObjectMeta}, nil
		}
		return set, err
	})
}

// follow records on a set that is written the trace of the write, so that what its own controller
// does next leads to the change of the deployment that it follows from.
func follow(ctx context.Context, set *v1alpha1.MachineSet) {
	parent := telemetry.Traceparent(ctx)
	if parent == "" {
		return
	}
	metav1.SetMetaDataAnnotation(&set.ObjectMeta, v1alpha1.AnnotationTraceparent, parent)
}

// create creates the new set. A set of the deployment that has the name and the template already
// was created by an earlier pass that has not observed it; any other set with the name is a
// collision.
func (c *Controller) create(ctx context.Context, w *rollout.World, set *v1alpha1.MachineSet) error {
	failed := func(err error) error {
		w.Done.CreateError = fmt.Sprintf("Failed to create new machine set %q: %v", set.Name, err)
		return fmt.Errorf("create MachineSet %s: %w", set.Name, err)
	}
	follow(ctx, set)
	ownerref.InSlotOf(set, w.Deployment)
	created, err := c.cfg.Machines.MachineSets(set.Namespace).Create(ctx, set, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		created, err = c.cfg.Machines.MachineSets(set.Namespace).Get(ctx, set.Name, metav1.GetOptions{})
		other, undecodable := decode.FailureOf(err)
		if undecodable && !metav1.IsControlledBy(other, w.Deployment) || err == nil && !rollout.IsNewSet(w.Deployment, created) {
			if err := rollout.CollisionError(w.Released); err != nil {
				return failed(err)
			}
			w.Done.Collided = true
			return nil
		}
	}
	if err != nil {
		return failed(err)
	}
	klog.FromContext(ctx).Info("Created MachineSet", telemetry.KeyMachineSet, klog.KObj(created),
		"revision", created.Annotations[v1alpha1.AnnotationRevision])
	w.Owned = append(w.Owned, created)
	c.recordCreated(w.Deployment.UID, created.UID)
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
			if c.cfg.Predict != nil {
				set = c.cfg.Predict(ctx, set, rollout.IsReplaced(w.Deployment, w.Owned[i], set))
			}
		}
		written, err := c.sets.Commit(ctx, w.Owned[i], set)
		if err != nil {
			return err
		}
		w.Wrote(written)
	}
	w.Machines = c.observeMachines(w.Owned) // they must not be older than the machines for which Predict has removed intents
	return nil
}

// concerns reports whether the set's own controller has to write intents for the change, too: the
// replicas have changed, or the machines have begun or ended to be replaced.
func concerns(before, after *v1alpha1.MachineSet) bool {
	return before.Spec.Replicas != after.Spec.Replicas ||
		before.Annotations[v1alpha1.AnnotationRolling] != after.Annotations[v1alpha1.AnnotationRolling]
}

// delete deletes sets, and records them as deleted. A set that has changed since it was observed is
// left to the next pass.
func (c *Controller) delete(ctx context.Context, sets []*v1alpha1.MachineSet, deleted map[types.UID]bool) error {
	for _, set := range sets {
		err := c.cfg.Machines.MachineSets(set.Namespace).Delete(ctx, set.Name, metav1.DeleteOptions{
			Preconditions: &metav1.Preconditions{UID: &set.UID, ResourceVersion: &set.ResourceVersion},
		})
		if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
			return fmt.Errorf("delete MachineSet %s: %w", set.Name, err)
		}
		if err == nil {
			klog.FromContext(ctx).Info("Deleted MachineSet", telemetry.KeyMachineSet, klog.KObj(set),
				"revision", set.Annotations[v1alpha1.AnnotationRevision])
		}
		deleted[set.UID] = true // also when it was rejected because the set has changed: the event of that change starts the next pass
	}
	return nil
}

// adopt sets the deployment as the controller of sets, after a live read has confirmed that the
// deployment exists, and records that it was tried.
func (c *Controller) adopt(
	ctx context.Context, d *v1alpha1.MachineDeployment, sets []*v1alpha1.MachineSet, tried map[types.UID]bool,
) (changed bool, err error) {
	live, err := c.cfg.Machines.MachineDeployments(d.Namespace).Get(ctx, d.Name, metav1.GetOptions{})
	if err != nil {
		return false, fmt.Errorf("read MachineDeployment %s before it adopts: %w", d.Name, err)
	}
	if err := ownerref.MayAdopt(d, live); err != nil {
		return false, err
	}
	return ownerref.Rewrite(ctx, c.sets.Commit, sets, tried, func(s *v1alpha1.MachineSet) {
		ownerref.Adopt(s, d, v1alpha1.SchemeGroupVersion.WithKind("MachineDeployment"))
	})
}

// release removes the deployment's owner reference from sets, and records that it was tried.
func (c *Controller) release(
	ctx context.Context, d *v1alpha1.MachineDeployment, sets []*v1alpha1.MachineSet, tried map[types.UID]bool,
) error {
	released, err := ownerref.ReleaseAll(ctx, c.sets.Commit, sets, tried, d)
	if len(released) > 0 && d.DeletionTimestamp == nil {
		telemetry.Emit(ctx, c.cfg.Events, d, v1alpha1.EventReleased, fmt.Sprintf(
			"Released %d MachineSets, because their labels do not match the selector; they keep their machines: %s",
			len(released), strings.Join(released, ", ")))
	}
	return err
}
