package family

import (
	"errors"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
)

// Parents is the side of the parents.
type Parents struct {
	// Enqueue has the parent of that name looked at.
	Enqueue func(key types.NamespacedName)
	// Selectors returns the selectors of all parents in a namespace, by name; nil for one that cannot work.
	Selectors func(namespace string) map[string]*metav1.LabelSelector
	// Gone is told of every child that is gone; nil where nobody wants to know.
	Gone func(child types.UID)
}

// Children are the objects of one kind, as an informer shows them. Make them with Follow.
type Children[T metav1.Object] struct {
	indexer                   cache.Indexer
	indexParents, indexOrphan string
	parents                   Parents
}

// Follow watches the informer of the children. name tells its indexes from those of others. It is called before the
// informer starts.
func Follow[T metav1.Object](informer cache.SharedIndexInformer, name string, parents Parents) (*Children[T], error) {
	c := &Children[T]{
		indexer: informer.GetIndexer(), parents: parents,
		indexParents: name + "-by-controller", indexOrphan: name + "-orphans",
	}
	err := informer.AddIndexers(cache.Indexers{
		c.indexParents: func(obj any) ([]string, error) {
			if child, ok := obj.(T); ok && metav1.GetControllerOfNoCopy(child) != nil {
				return []string{string(metav1.GetControllerOfNoCopy(child).UID)}, nil
			}
			return nil, nil
		},
		c.indexOrphan: func(obj any) ([]string, error) {
			if child, ok := obj.(T); ok && metav1.GetControllerOfNoCopy(child) == nil {
				return []string{child.GetNamespace()}, nil
			}
			return nil, nil
		},
	})
	_, err2 := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { c.changed(obj) },
		UpdateFunc: c.updated,
		DeleteFunc: c.gone,
	})
	if err := errors.Join(err, err2); err != nil {
		return nil, fmt.Errorf("follow the children of %s: %w", name, err)
	}
	return c, nil
}

// Of returns the children whose controller is the parent.
func (c *Children[T]) Of(parent types.UID) ([]T, error) { return c.by(c.indexParents, string(parent)) }

// Orphans returns the objects of a namespace that have no controller.
func (c *Children[T]) Orphans(namespace string) ([]T, error) { return c.by(c.indexOrphan, namespace) }

func (c *Children[T]) by(index, value string) ([]T, error) {
	objs, err := c.indexer.ByIndex(index, value)
	if err != nil {
		return nil, fmt.Errorf("read children from the cache: %w", err)
	}
	children := make([]T, 0, len(objs))
	for _, obj := range objs {
		if child, ok := obj.(T); ok {
			children = append(children, child)
		}
	}
	return children, nil
}

// changed has the child's parent looked at, or every parent that could adopt it.
func (c *Children[T]) changed(obj any) {
	child, ok := obj.(T)
	if !ok {
		return
	}
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

// updated looks at the parent from before, too, when that was another one.
func (c *Children[T]) updated(before, after any) {
	was, ok := before.(T)
	is, ok2 := after.(T)
	if !ok || !ok2 {
		return
	}
	then, now := metav1.GetControllerOfNoCopy(was), metav1.GetControllerOfNoCopy(is)
	if then != nil && (now == nil || now.UID != then.UID) {
		c.changed(before)
	}
	c.changed(after)
}

func (c *Children[T]) gone(obj any) {
	child, ok := Last[T](obj)
	if !ok {
		return
	}
	if c.parents.Gone != nil {
		c.parents.Gone(child.GetUID())
	}
	c.changed(child)
}

// Last returns the object of an informer's delete event, which may be wrapped when the informer missed the event itself.
func Last[T metav1.Object](obj any) (last T, ok bool) {
	if unknown, wrapped := obj.(cache.DeletedFinalStateUnknown); wrapped {
		obj = unknown.Obj
	}
	last, ok = obj.(T)
	return last, ok
}
