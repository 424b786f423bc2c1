package slotcache

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/machine-controller-fleet/machine-controller-fleet/internal/decode"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/objectcache"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/objectversion"
)

// shelf stores the objects of a kind: those that can be decoded, and the others. An object is in at most one of the two, in
// the newest version that was put.
type shelf[T metav1.Object] struct {
	all         *objectcache.Objects[T]
	undecodable *objectcache.Objects[*decode.Failure]
}

// put stores a version of an object, which is a T or a *decode.Failure, unless a newer version is stored.
func (s shelf[T]) put(obj metav1.Object, silent bool) {
	key := objectcache.Key(obj)
	switch seen := obj.(type) {
	case *decode.Failure:
		if known, ok := s.all.Get(key); ok {
			if objectversion.Compare(seen.GetResourceVersion(), known.GetResourceVersion()) <= 0 {
				return
			}
			s.all.Remove(key, "")
		}
		s.undecodable.Apply(seen, silent)
	case T:
		if known, ok := s.undecodable.Get(key); ok {
			if objectversion.Compare(seen.GetResourceVersion(), known.GetResourceVersion()) <= 0 {
				return
			}
			s.undecodable.Remove(key, "")
		}
		s.all.Apply(seen, silent)
	}
}

// get returns an object.
func (s shelf[T]) get(key types.NamespacedName) (obj metav1.Object, ok bool) {
	if f, ok := s.undecodable.Get(key); ok {
		return f, true
	}
	return s.all.Get(key)
}

// remove deletes an object from the cache, unless a newer version than the given one is stored. The version may be "".
func (s shelf[T]) remove(key types.NamespacedName, version string) {
	s.all.Remove(key, version)
	s.undecodable.Remove(key, version)
}

// of returns the objects of a slot.
func (s shelf[T]) of(slot int) []metav1.Object {
	return together(s.all.Of(slot), s.undecodable.Of(slot))
}

// in returns the objects of a namespace.
func (s shelf[T]) in(namespace string) []metav1.Object {
	return together(s.all.In(namespace), s.undecodable.In(namespace))
}

func together[T metav1.Object](decoded []T, failures []*decode.Failure) []metav1.Object {
	all := make([]metav1.Object, 0, len(decoded)+len(failures))
	for _, obj := range decoded {
		all = append(all, obj)
	}
	for _, f := range failures {
		all = append(all, f)
	}
	return all
}

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
