package machineset

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machineset/scale"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/decode"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/deletion"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/deletion/receipt"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/machinefacts"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/ownerref"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/telemetry"
)

// listLive lists the machines that match the set's selector from the API server: one list of
// metadata, however many there are. For a set that is being deleted it lists all machines of the
// namespace, so that those which have lost their labels are deleted, too.
//
// While the cache does not have all machines of the last list, that list is used again: otherwise
// the events of a hundred new machines would cause a hundred lists.
func (c *Controller) listLive(ctx context.Context, w *scale.World) error {
	if live := c.lastList(w); live != nil {
		w.Live = live
		return nil
	}
	text := ""
	if w.Set.DeletionTimestamp == nil {
		selector, err := metav1.LabelSelectorAsSelector(w.Set.Spec.Selector)
		if err != nil {
			return fmt.Errorf("spec.selector of MachineSet %s: %w", w.Set.Name, err)
		}
		text = selector.String()
	}
	begun := c.own.Now()
	live := &scale.Live{Owned: map[types.UID]*metav1.ObjectMeta{}, Names: map[string]bool{}}
	var orphans []*metav1.PartialObjectMetadata
	err := c.metadata.Each(ctx, "machines", w.Set.Namespace, text, func(found *metav1.PartialObjectMetadata) {
		live.Names[found.Name] = true
		switch owner := metav1.GetControllerOfNoCopy(found); {
		case owner == nil && w.Set.DeletionTimestamp == nil:
			orphans = append(orphans, found)
		case owner != nil && owner.UID == w.Set.UID:
			live.Owned[found.UID] = &found.ObjectMeta
		}
	})
	if err != nil {
		return err
	}
	for _, found := range orphans {
		if err := c.readAgain(ctx, w, found); err != nil {
			return err
		}
	}
	w.Live, w.MustListOrphans = live, false
	c.listed(w, begun)
	return nil
}

// lastList returns the last list if it has machines that the cache should show and does not; nil
// otherwise.
func (c *Controller) lastList(w *scale.World) *scale.Live {
	c.mu.Lock()
	defer c.mu.Unlock()
	known := c.done[w.Set.UID]
	if known == nil || len(known.awaited) == 0 || w.MustListOrphans || w.Set.DeletionTimestamp != nil ||
		c.own.Since(known.listed) > machinefacts.LateCache {
		return nil
	}
	return known.live
}

// readAgain reads a machine without a controller again, so that the set adopts its current version.
func (c *Controller) readAgain(ctx context.Context, w *scale.World, found metav1.Object) (err error) {
	w.Orphans, err = ownerref.LookAgain(w.Orphans, w.Done.Adopted, found, func(name string) (*v1alpha1.Machine, error) {
		return c.read(ctx, w.Set.Namespace, name)
	})
	return err
}

// read reads a machine from the API server. Of one that cannot be decoded it returns the metadata
// only.
func (c *Controller) read(ctx context.Context, namespace, name string) (*v1alpha1.Machine, error) {
	m, err := c.cfg.Machines.Machines(namespace).Get(ctx, name, metav1.GetOptions{})
	if failure, undecodable := decode.FailureOf(err); undecodable {
		return &v1alpha1.Machine{ObjectMeta: failure.ObjectMeta}, nil
	}
	return m, err
}

// create creates the machines of the ordinals.
func (c *Controller) create(ctx context.Context, w *scale.World, ordinals []int64) error {
	var mu sync.Mutex
	created := 0
	err := slowStart(ordinals, func(ordinal int64) error {
		occupied, err := c.createOne(ctx, w.Set, ordinal)
		mu.Lock()
		defer mu.Unlock()
		switch {
		case err != nil:
			return err
		case occupied:
			w.Done.Occupied[ordinal] = true
		default:
			w.Done.Created[ordinal] = true
			created++
		}
		return nil
	})
	if created > 0 {
		telemetry.Emit(ctx, c.cfg.Events, w.Set, v1alpha1.EventSuccessfulCreate, fmt.Sprintf("Created %d machines", created))
	}
	if err != nil {
		w.Done.CreateError = err.Error()
		w.Live = nil // the list is older than the creations, and one without an answer may have taken effect
	}
	return err
}

// createOne creates one machine. occupied reports whether its name belongs to another machine. A
// machine that exists with this set and ordinal was created by an earlier pass that has not
// observed it.
func (c *Controller) createOne(ctx context.Context, set *v1alpha1.MachineSet, ordinal int64) (occupied bool, err error) {
	machine := newMachine(ctx, set, ordinal)
	if _, known := c.cfg.View.Classes.Get(types.NamespacedName{Namespace: set.Namespace, Name: machine.Spec.Class.Name}); known {
		machine.Annotations[v1alpha1.AnnotationCreateSent] = "true" // it saves the machine controller a write before it creates the VM
	}
	_, err = c.cfg.Machines.Machines(set.Namespace).Create(ctx, machine, metav1.CreateOptions{})
	if err == nil {
		klog.FromContext(ctx).Info("Created Machine", telemetry.KeyMachine, klog.KObj(machine))
		return false, nil
	}
	if !apierrors.IsAlreadyExists(err) {
		return false, fmt.Errorf("create machine %s: %w", machine.Name, err)
	}
	other, err := c.read(ctx, set.Namespace, machine.Name)
	if err != nil {
		return false, fmt.Errorf("read machine %s, which exists already: %w", machine.Name, err)
	}
	isOurs := metav1.IsControlledBy(other, set) &&
		other.Annotations[v1alpha1.AnnotationOrdinal] == machine.Annotations[v1alpha1.AnnotationOrdinal]
	return !isOurs, nil
}

// newMachine returns the object of a new machine, in the slot of its set and with the trace of the
// pass.
func newMachine(ctx context.Context, set *v1alpha1.MachineSet, ordinal int64) *v1alpha1.Machine {
	m := scale.NewMachine(set, ordinal)
	if parent := telemetry.Traceparent(ctx); parent != "" {
		m.Annotations[v1alpha1.AnnotationTraceparent] = parent
	}
	ownerref.InSlotOf(m, set)
	return m
}

// delete deletes machines for the reasons, by their UIDs. A machine that has changed since it was
// observed is left to the next pass.
func (c *Controller) delete(ctx context.Context, w *scale.World, machines []*v1alpha1.Machine, reasons map[types.UID]receipt.Reason) error {
	var mu sync.Mutex
	var deleted []deletion.Deletion
	err := each(machines, func(m *v1alpha1.Machine) error {
		of := deletion.OfMachine(m, reasons[m.UID])
		_, err := c.cfg.Deletions.Delete(ctx, c.cfg.Events, of, func(ctx context.Context) error {
			return c.cfg.Machines.Machines(m.Namespace).Delete(ctx, m.Name, metav1.DeleteOptions{
				Preconditions: &metav1.Preconditions{UID: &m.UID, ResourceVersion: &m.ResourceVersion},
			})
		})
		if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
			return fmt.Errorf("delete machine %s: %w", m.Name, err)
		}
		mu.Lock()
		defer mu.Unlock()
		if apierrors.IsConflict(err) {
			w.Done.Refused[m.UID] = true
			return nil
		}
		w.Done.Deleted[m.UID] = true
		deleted = append(deleted, of)
		if err == nil && isStale(m) {
			c.stale.Inc()
		}
		return nil
	})
	if len(deleted) > 0 {
		slices.SortFunc(deleted, func(a, b deletion.Deletion) int { return strings.Compare(a.Name, b.Name) })
		text := deletion.TextOfAll(ctx, deleted)
		telemetry.Emit(ctx, c.cfg.Events, w.Set, v1alpha1.EventSuccessfulDelete, text)
		if root, ok := ownerref.RootOfSet(c.cfg.View, w.Set); ok && root.GetUID() != w.Set.UID {
			if about, ok := root.(runtime.Object); ok {
				telemetry.Emit(ctx, c.cfg.Events, about, v1alpha1.EventSuccessfulDelete, text)
			}
		}
	}
	if err != nil {
		w.Done.DeleteError = err.Error()
	}
	return err
}

// update writes machines. A machine that has changed since it was observed is left to the next
// pass.
func (c *Controller) update(ctx context.Context, w *scale.World, desired []*v1alpha1.Machine) error {
	place := make(map[types.UID]int, len(w.Owned))
	for i, m := range w.Owned {
		place[m.UID] = i
	}
	for _, m := range desired {
		w.Done.Updated[m.UID] = true
	}
	return each(desired, func(m *v1alpha1.Machine) error {
		i := place[m.UID]
		written, err := c.machines.Commit(ctx, w.Owned[i], m)
		w.Owned[i] = written // no other goroutine writes this element
		if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
			return nil
		}
		return err
	})
}

// adopt sets the set as the controller of machines, after a live read has confirmed that the set
// exists.
func (c *Controller) adopt(ctx context.Context, w *scale.World, machines []*v1alpha1.Machine) error {
	live, err := c.cfg.Machines.MachineSets(w.Set.Namespace).Get(ctx, w.Set.Name, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("read MachineSet %s before it adopts: %w", w.Set.Name, err)
	}
	if err := ownerref.MayAdopt(w.Set, live); err != nil {
		return err
	}
	w.Live = nil // the list is older than the adoptions
	changed, err := ownerref.Rewrite(ctx, c.machines.Commit, machines, w.Done.Adopted, func(m *v1alpha1.Machine) {
		ownerref.Adopt(m, w.Set, v1alpha1.SchemeGroupVersion.WithKind("MachineSet"))
	})
	w.Done.AdoptionRace, w.MustListOrphans = w.Done.AdoptionRace.Next(changed)
	return err
}

// release removes the set's owner reference from machines.
func (c *Controller) release(ctx context.Context, w *scale.World, machines []*v1alpha1.Machine) error {
	released, err := ownerref.ReleaseAll(ctx, c.machines.Commit, machines, w.Done.Adopted, w.Set)
	if len(released) > 0 {
		w.Done.Released = append(w.Done.Released, released...)
		c.setReleased(w.Set.UID, w.Done.Released) // the pass may end before it writes a status
		telemetry.Emit(ctx, c.cfg.Events, w.Set, v1alpha1.EventReleased, scale.Released(released))
	}
	return err
}
