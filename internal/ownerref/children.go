package ownerref

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/machine-controller-fleet/machine-controller-fleet/internal/decode"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/objectcache"
)

// Parents is the interface of the controller of the parents.
type Parents struct {
	// Enqueue enqueues the parent of that name.
	Enqueue func(key types.NamespacedName)
	// Selectors returns the selectors of all parents in a namespace, by name; nil for one that is
	// invalid.
	Selectors func(namespace string) map[string]*metav1.LabelSelector
	// Gone is called for every child that was deleted; may be nil.
	Gone func(child types.UID)
}

// Children are the objects of one kind. Create them with Follow.
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

// OnUndecodable enqueues the parent of every child that becomes known as undecodable, or no longer
// is. It is called before the first object is applied.
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
		if mayMatch(selector, child.GetLabels()) {
			key.Name = name
			c.parents.Enqueue(key)
		}
	}
}

// mayMatch reports whether a selector matches labels, or is invalid: it is the parent that
// validates it. The selectors of all parents are not compiled for each change of a child: that
// takes much longer, in the handler that all namespaces share.
func mayMatch(selector *metav1.LabelSelector, labels map[string]string) bool {
	if selector == nil {
		return false
	}
	for key, value := range selector.MatchLabels {
		if got, labeled := labels[key]; !labeled || got != value {
			return false
		}
	}
	for i := range selector.MatchExpressions {
		e := &selector.MatchExpressions[i]
		value, labeled := labels[e.Key]
		isOneOf := labeled && slices.Contains(e.Values, value)
		matches := false
		switch e.Operator {
		case metav1.LabelSelectorOpIn:
			matches = isOneOf
		case metav1.LabelSelectorOpNotIn:
			matches = !isOneOf
		case metav1.LabelSelectorOpExists:
			matches = labeled
		case metav1.LabelSelectorOpDoesNotExist:
			matches = !labeled
		}
		if !matches {
			return false
		}
	}
	return true
}
