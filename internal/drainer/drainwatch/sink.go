package drainwatch

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/machine-controller-fleet/machine-controller-fleet/internal/objectcache"
)

// sink stores the objects of one kind from one watch. It is the only writer of all.
type sink[T metav1.Object] struct {
	all    *objectcache.Objects[T]
	trim   func(T) T // removes fields that are not needed
	synced func()    // is called after each list
}

// Add stores an object.
func (s *sink[T]) Add(obj any) error { return s.Update(obj) }

// Update stores an object.
func (s *sink[T]) Update(obj any) error {
	seen, err := s.object(obj)
	if err != nil {
		return err
	}
	s.all.Apply(s.trim(seen), false)
	return nil
}

// Delete removes an object.
func (s *sink[T]) Delete(obj any) error {
	seen, err := s.object(obj)
	if err != nil {
		return err
	}
	s.all.Remove(objectcache.Key(seen), seen.GetResourceVersion())
	return nil
}

// Replace stores a list, and removes the objects that are not in it.
func (s *sink[T]) Replace(list []any, _ string) error {
	listed := map[types.NamespacedName]bool{}
	for _, obj := range list {
		seen, err := s.object(obj)
		if err != nil {
			return err
		}
		listed[objectcache.Key(seen)] = true
		s.all.Apply(s.trim(seen), false)
	}
	for _, obj := range s.all.All() {
		if key := objectcache.Key(obj); !listed[key] {
			s.all.Remove(key, "")
		}
	}
	s.synced()
	return nil
}

// Resync does nothing.
func (*sink[T]) Resync() error { return nil }

func (*sink[T]) object(obj any) (T, error) {
	typed, ok := obj.(T)
	if !ok {
		return typed, fmt.Errorf("watch: expected a %T, got %T", typed, obj)
	}
	return typed, nil
}
