package objectcache

import (
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/machine-controller-fleet/machine-controller-fleet/internal/decode"
)

// Store stores all objects of a kind: those that can be decoded, and the others with their
// metadata. An object is in one of the two, in the newest version that was put. Create one with
// NewStore.
type Store[T metav1.Object] struct {
	// Objects are those that can be decoded.
	*Objects[T]

	// Undecodable are those that exist and cannot be decoded.
	Undecodable *Objects[*decode.Failure]

	moving *sync.RWMutex // held while an object moves from one of the two to the other
}

// NewStore creates an empty one.
func NewStore[T metav1.Object]() *Store[T] { return StoreOf(New[T]()) }

// StoreOf makes one that stores in decoded what can be decoded. Decoded must have no other writer.
func StoreOf[T metav1.Object](decoded *Objects[T]) *Store[T] {
	return &Store[T]{Objects: decoded, Undecodable: New[*decode.Failure](), moving: &sync.RWMutex{}}
}

// part returns the objects of a namespace, of both kinds, as View.Of does. It calls note with the
// begin and the end of each.
func (s *Store[T]) part(namespace string, note func(begin, end func())) *Store[T] {
	decoded, begin, end := s.Objects.part(namespace)
	note(begin, end)
	undecodable, begin, end := s.Undecodable.part(namespace)
	note(begin, end)
	return &Store[T]{Objects: decoded, Undecodable: undecodable, moving: s.moving}
}

// Put stores a version of an object, which is a T or a *decode.Failure, unless this version or a
// newer one is stored. Handlers are called as with Objects.Apply; when the object was stored as one
// of the other type, they see it removed there first.
func (s *Store[T]) Put(obj metav1.Object, silent bool) { s.PutListed(obj, silent, "") }

// PutListed is Put for an object of a consistent list of a version. It also replaces a newer
// version of the object that the list would show if it existed: etcd was restored.
func (s *Store[T]) PutListed(obj metav1.Object, silent bool, version string) {
	switch seen := obj.(type) {
	case *decode.Failure:
		move(s.moving, s.Objects, s.Undecodable, seen, silent, version)
	case T:
		move(s.moving, s.Undecodable, s.Objects, seen, silent, version)
	}
}

// move stores an object in to, and removes it from from. The handlers are called when moving is
// released, so that they can read.
func move[From, To metav1.Object](moving *sync.RWMutex, from *Objects[From], to *Objects[To], obj To, silent bool, asOf string) {
	key := Key(obj)
	known, is := from.Get(key)
	if !is {
		to.store(obj, silent, asOf)
		return
	}
	if isKnown(obj, known, asOf) {
		return
	}
	from.feeding.Lock()
	defer from.feeding.Unlock()
	to.feeding.Lock()
	defer to.feeding.Unlock()
	moving.Lock()
	removed := from.remove(key, "")
	applied := to.apply(obj, silent, asOf)
	moving.Unlock()
	removed()
	applied()
}

// Find returns an object.
func (s *Store[T]) Find(key types.NamespacedName) (obj metav1.Object, ok bool) {
	s.moving.RLock()
	defer s.moving.RUnlock()
	if f, ok := s.Undecodable.Get(key); ok {
		return f, true
	}
	return s.Get(key)
}

// Delete removes an object, unless a newer version than the given one is stored. The version may be
// "".
func (s *Store[T]) Delete(key types.NamespacedName, version string) {
	s.Remove(key, version)
	s.Undecodable.Remove(key, version)
}

// InSlot returns the objects of a slot, of both kinds.
func (s *Store[T]) InSlot(slot int) []metav1.Object {
	s.moving.RLock()
	defer s.moving.RUnlock()
	return together(s.Of(slot), s.Undecodable.Of(slot))
}

// InNamespace returns the objects of a namespace, of both kinds.
func (s *Store[T]) InNamespace(namespace string) []metav1.Object {
	s.moving.RLock()
	defer s.moving.RUnlock()
	return together(s.In(namespace), s.Undecodable.In(namespace))
}

// Each returns all objects, of both kinds.
func (s *Store[T]) Each() []metav1.Object {
	s.moving.RLock()
	defer s.moving.RUnlock()
	return together(s.All(), s.Undecodable.All())
}

func together[T metav1.Object](decoded []T, undecodable []*decode.Failure) []metav1.Object {
	all := make([]metav1.Object, 0, len(decoded)+len(undecodable))
	for _, obj := range decoded {
		all = append(all, obj)
	}
	for _, f := range undecodable {
		all = append(all, f)
	}
	return all
}

// Children returns the objects in the namespace of a controller that name its UID as that of their
// controller, each once.
func (s *Store[T]) Children(controller metav1.Object) (decoded []T, undecodable []*decode.Failure) {
	s.moving.RLock()
	defer s.moving.RUnlock()
	return s.Under(controller), s.Undecodable.Under(controller)
}
