package slotcache

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/machine-controller-fleet/machine-controller-fleet/internal/objectcache"
)

// mirror takes in what one watch shows, whatever its slot.
type mirror[T metav1.Object] struct {
	shelf[T]

	mine func() []metav1.Object        // those that this watch shows
	keep func(obj T) (kept T, is bool) // makes an object small, and says whether it is kept; nil keeps all
}

// Add takes in an object.
func (m *mirror[T]) Add(obj any) error { return m.Update(obj) }

// Update takes in an object.
func (m *mirror[T]) Update(obj any) error {
	_, err := m.take(obj)
	return err
}

// take takes in an object and returns its key. The object is not touched afterwards: others read it from then on.
func (m *mirror[T]) take(obj any) (types.NamespacedName, error) {
	seen, err := seenOf[T](obj)
	if err != nil {
		return types.NamespacedName{}, err
	}
	key := objectcache.Key(seen)
	if whole, decoded := seen.(T); decoded && m.keep != nil {
		kept, is := m.keep(whole)
		if !is {
			m.remove(key, seen.GetResourceVersion())
			return key, nil
		}
		seen = kept
	}
	m.put(seen, false)
	return key, nil
}

// Delete takes in that an object has gone.
func (m *mirror[T]) Delete(obj any) error {
	seen, err := seenOf[T](obj)
	if err != nil {
		return err
	}
	m.remove(objectcache.Key(seen), seen.GetResourceVersion())
	return nil
}

// Replace takes in a list.
func (m *mirror[T]) Replace(list []any, _ string) error {
	listed := map[types.NamespacedName]bool{}
	for _, obj := range list {
		key, err := m.take(obj)
		if err != nil {
			return err
		}
		listed[key] = true
	}
	for _, obj := range m.mine() {
		if !listed[objectcache.Key(obj)] {
			m.remove(objectcache.Key(obj), "")
		}
	}
	return nil
}

// Resync does nothing.
func (*mirror[T]) Resync() error { return nil }
