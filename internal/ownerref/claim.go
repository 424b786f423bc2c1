package ownerref

import (
	"context"
	"fmt"
	"maps"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/decode"
)

// Object is an object that can be copied.
type Object[T any] interface {
	comparable
	metav1.Object
	DeepCopy() T
}

// MayAdopt reports whether a parent may adopt: live, as the API server has it now, has to be the
// one that was observed, and must not be in deletion.
func MayAdopt(observed, live metav1.Object) error {
	if live.GetUID() == observed.GetUID() && live.GetDeletionTimestamp() == nil {
		return nil
	}
	return fmt.Errorf("%s/%s is being deleted or was replaced, and cannot adopt", observed.GetNamespace(), observed.GetName())
}

// Adopt makes the parent the controller of the child. It becomes the first of the owners: the
// cluster-autoscaler reads no other.
func Adopt(child, parent metav1.Object, kind schema.GroupVersionKind) {
	annotations := maps.Clone(child.GetAnnotations())
	delete(annotations, v1alpha1.AnnotationReleasedBy)
	child.SetAnnotations(annotations)
	owner := *metav1.NewControllerRef(parent, kind)
	child.SetOwnerReferences(append([]metav1.OwnerReference{owner}, child.GetOwnerReferences()...))
}

// orphan removes the parent from the child.
func orphan(child metav1.Object, parent types.UID) {
	child.SetOwnerReferences(slices.DeleteFunc(slices.Clone(child.GetOwnerReferences()), func(o metav1.OwnerReference) bool {
		return o.UID == parent
	}))
}

// Release removes the parent from the child, and the slot label that the child had because of the
// parent: it is offered to others, or becomes a root. It records the parent, which creates another
// child in its place: how many were released is counted.
func Release(child metav1.Object, parent types.UID) {
	labels := maps.Clone(child.GetLabels())
	delete(labels, v1alpha1.LabelSlot)
	child.SetLabels(labels)
	orphan(child, parent)
	annotations := maps.Clone(child.GetAnnotations())
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[v1alpha1.AnnotationReleasedBy] = string(parent)
	child.SetAnnotations(annotations)
}

// InSlotOf puts a child that is about to be created into the slot of its parent, regardless of a
// slot label in its template: the label is no part of a template.
func InSlotOf(child, parent metav1.Object) {
	labels := maps.Clone(child.GetLabels())
	delete(labels, v1alpha1.LabelSlot)
	if slot, ok := parent.GetLabels()[v1alpha1.LabelSlot]; ok {
		if labels == nil {
			labels = map[string]string{}
		}
		labels[v1alpha1.LabelSlot] = slot
	}
	child.SetLabels(labels)
}

// LookAgain puts the current version of an orphan that a live list has found among the known ones:
// the cache has an older version of one that has changed, and none of one in another slot, or in
// none. The previous version was tried, and the new one was not. An orphan that no longer exists or
// has a controller is skipped. get reads it.
func LookAgain[T Object[T]](
	orphans []T, tried map[types.UID]bool, found metav1.Object, get func(name string) (T, error),
) ([]T, error) {
	isIt := func(o T) bool { return o.GetUID() == found.GetUID() }
	if at := slices.IndexFunc(orphans, isIt); at >= 0 && orphans[at].GetResourceVersion() == found.GetResourceVersion() {
		return orphans, nil
	}
	live, err := get(found.GetName())
	if err != nil && !apierrors.IsNotFound(err) {
		return orphans, fmt.Errorf("read %s/%s, which has no controller: %w", found.GetNamespace(), found.GetName(), err)
	}
	orphans = slices.DeleteFunc(slices.Clone(orphans), isIt)
	if err == nil && isIt(live) && metav1.GetControllerOfNoCopy(live) == nil {
		delete(tried, live.GetUID())
		orphans = append(orphans, live)
	}
	return orphans, nil
}

// Rewrite changes children and commits them, and records each as tried. One that has changed
// meanwhile, or no longer exists, is skipped until its event, or until LookAgain. changed reports
// whether one had changed: of a child in another slot no event follows.
func Rewrite[T Object[T]](
	ctx context.Context, commit func(ctx context.Context, observed, desired T) (T, error),
	children []T, tried map[types.UID]bool, change func(T),
) (changed bool, err error) {
	for _, child := range children {
		tried[child.GetUID()] = true
		desired := child.DeepCopy()
		change(desired)
		_, err := commit(ctx, child, desired)
		if _, undecodable := decode.FailureOf(err); undecodable {
			continue // the write took effect, and the object still cannot be decoded
		}
		changed = changed || apierrors.IsConflict(err)
		if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
			return changed, err
		}
	}
	return changed, nil
}

// ReleaseAll releases children from a parent and commits them, as Rewrite does. It returns the
// names of those that were released, also with an error. A parent that is being deleted creates
// none in their place: they only lose its owner reference.
func ReleaseAll[T Object[T]](
	ctx context.Context, commit func(ctx context.Context, observed, desired T) (T, error),
	children []T, tried map[types.UID]bool, parent metav1.Object,
) (released []string, err error) {
	release := Release
	if parent.GetDeletionTimestamp() != nil {
		release = orphan
	}
	_, err = Rewrite(ctx, func(ctx context.Context, observed, desired T) (T, error) {
		written, err := commit(ctx, observed, desired)
		if err == nil {
			released = append(released, desired.GetName())
		}
		return written, err
	}, children, tried, func(child T) { release(child, parent.GetUID()) })
	return released, err
}
