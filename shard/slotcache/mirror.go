package slotcache

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/machine-controller-fleet/machine-controller-fleet/internal/decode"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/objectcache"
)

// mirror stores the objects of one watch, whatever their slots.
type mirror[T metav1.Object] struct {
	store *objectcache.Store[T]
	mine  func() []metav1.Object        // the stored objects of this watch
	keep  func(obj T) (kept T, is bool) // returns a reduced object and whether it is stored; nil stores all
}

// Add stores an object.
func (m *mirror[T]) Add(obj any) error { return m.Update(obj) }

// Update stores an object.
func (m *mirror[T]) Update(obj any) error {
	_, err := m.put(obj)
	return err
}

// put stores an object and returns its key. The object is not changed afterwards, because others read it from then on.
func (m *mirror[T]) put(obj any) (types.NamespacedName, error) {
	seen, err := seenOf[T](obj)
	if err != nil {
		return types.NamespacedName{}, err
	}
	key := objectcache.Key(seen)
	if whole, decoded := seen.(T); decoded && m.keep != nil {
		kept, is := m.keep(whole)
		if !is {
			m.store.Delete(key, seen.GetResourceVersion())
			return key, nil
		}
		seen = kept
	}
	m.store.Put(seen, false)
	return key, nil
}

// Delete removes an object.
func (m *mirror[T]) Delete(obj any) error {
	seen, err := seenOf[T](obj)
	if err != nil {
		return err
	}
	m.store.Delete(objectcache.Key(seen), seen.GetResourceVersion())
	return nil
}

// Replace stores a list, and removes the objects that are not in it.
func (m *mirror[T]) Replace(list []any, _ string) error {
	listed := map[types.NamespacedName]bool{}
	for _, obj := range list {
		key, err := m.put(obj)
		if err != nil {
			return err
		}
		listed[key] = true
	}
	for _, obj := range m.mine() {
		if !listed[objectcache.Key(obj)] {
			m.store.Delete(objectcache.Key(obj), "")
		}
	}
	return nil
}

// Resync does nothing.
func (*mirror[T]) Resync() error { return nil }

// seenOf returns an object from a watch, a T or a *decode.Failure, without its managed fields, which are not needed and are
// about half of its size. Errors: the object is of another type.
func seenOf[T metav1.Object](obj any) (metav1.Object, error) {
	switch seen := obj.(type) {
	case *decode.Failure:
		return seen.Small(), nil
	case T:
		seen.SetManagedFields(nil)
		return seen, nil
	}
	var want T
	return nil, fmt.Errorf("watch: expected a %T, got %T", want, obj)
}
