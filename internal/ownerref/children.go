package ownerref

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/machine-controller-fleet/machine-controller-fleet/internal/decode"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/objectcache"
)

// Parents is the interface of the controller of the parents.
type Parents struct {
	// Enqueue enqueues the parent of that name.
	Enqueue func(key types.NamespacedName)
	// Selectors returns the selectors of all parents in a namespace, by name; nil for one that is invalid.
	Selectors func(namespace string) map[string]*metav1.LabelSelector
	// Gone is called for every child that was deleted; may be nil.
	Gone func(child types.UID)
}

// Children are the objects of one kind. Make them with Follow.
type Children[T Object[T]] struct {
	all     *objectcache.Objects[T]
	parents Parents
}

// Follow watches the children. It is called before the first object is applied.
func Follow[T Object[T]](all *objectcache.Objects[T], parents Parents) *Children[T] {
	c := &Children[T]{all: all, parents: parents}
	all.OnChange(c.changed)
	return c
}

// OnUndecodable enqueues the parent of every child that becomes known as undecodable, or no longer is. It is called before
// the first object is applied.
func OnUndecodable(children *objectcache.Objects[*decode.Failure], enqueue func(parent types.NamespacedName)) {
	children.OnChange(func(before, after *decode.Failure) {
		for _, child := range []*decode.Failure{before, after} {
			if child == nil {
				continue
			}
			if owner := metav1.GetControllerOfNoCopy(child); owner != nil {
				enqueue(types.NamespacedName{Namespace: child.Namespace, Name: owner.Name})
			}
		}
	})
}

// Orphans returns the objects of a namespace that have no controller.
func (c *Children[T]) Orphans(namespace string) []T { return c.all.Orphans(namespace) }

// changed enqueues the current parent of the child, and the previous one.
func (c *Children[T]) changed(before, after T) {
	var none T
	switch {
	case after == none:
		if c.parents.Gone != nil {
			c.parents.Gone(before.GetUID())
		}
		c.concern(before)
		return
	case before != none:
		then, now := metav1.GetControllerOfNoCopy(before), metav1.GetControllerOfNoCopy(after)
		if then != nil && (now == nil || now.UID != then.UID) {
			c.concern(before)
		}
	}
	c.concern(after)
}

// concern enqueues the child's parent, or every parent that could adopt it.
func (c *Children[T]) concern(child T) {
	key := types.NamespacedName{Namespace: child.GetNamespace()}
	if owner := metav1.GetControllerOfNoCopy(child); owner != nil {
		key.Name = owner.Name
		c.parents.Enqueue(key)
		return
	}
	for name, selector := range c.parents.Selectors(child.GetNamespace()) {
		if s, err := metav1.LabelSelectorAsSelector(selector); err == nil && s.Matches(labels.Set(child.GetLabels())) {
			key.Name = name
			c.parents.Enqueue(key)
		}
	}
}
