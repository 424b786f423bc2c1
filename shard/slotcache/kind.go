package slotcache

import (
	"cmp"
	"context"
	"strconv"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/objectcache"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/objectversion"
)

// Kind is a kind of objects that grants watch. KindOf returns one.
type Kind interface {
	// watch lists and watches the objects of a grant until ctx ends; synced is called after the first
	// list. If the grant takes over from no other, its events are used from the start.
	watch(ctx context.Context, g *grant, synced func(), running *sync.WaitGroup)
	open(slots []int)
	drop(slots []int)
	// called returns the kind's name.
	called() string
}

// kind stores the objects of one kind from all grants. Every object that it has stored is in a slot
// with a holder.
type kind[T metav1.Object] struct {
	name  string
	from  objectcache.Source
	store *objectcache.Store[T]

	mu     sync.Mutex
	holder map[int]*sink[T] // the sink whose events are used, by slot
	opened map[int]bool
}

// KindOf returns a Kind that stores its objects in the store, of which there must be no other
// writer. The name is for logs.
func KindOf[T metav1.Object](name string, from objectcache.Source, store *objectcache.Store[T]) Kind {
	return &kind[T]{name: name, from: from, store: store, holder: map[int]*sink[T]{}, opened: map[int]bool{}}
}

func (k *kind[T]) watch(ctx context.Context, g *grant, synced func(), running *sync.WaitGroup) {
	s := &sink[T]{kind: k, grant: g, synced: sync.OnceFunc(synced), past: map[int]string{}}
	if len(g.from) == 0 {
		k.mu.Lock()
		for slot := range g.slots {
			k.holder[slot] = s
		}
		k.mu.Unlock()
	}
	selected := selector(g.slots)
	running.Go(func() { objectcache.Watch(ctx, k.name, k.from, selected, s) })
}

func (k *kind[T]) called() string { return k.name }

func (k *kind[T]) open(slots []int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, slot := range slots {
		if k.holder[slot] != nil {
			k.opened[slot] = true
			k.store.Announce(slot)
			k.store.Undecodable.Announce(slot)
		}
	}
}

func (k *kind[T]) drop(slots []int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, slot := range slots {
		delete(k.holder, slot)
		delete(k.opened, slot)
		for _, obj := range k.store.InSlot(slot) {
			k.store.Delete(objectcache.Key(obj), "")
		}
	}
}

// sink receives the events of one grant's reflector of the kind. Its fields are guarded by the
// kind's mu.
type sink[T metav1.Object] struct {
	*kind[T]
	grant  *grant
	synced func()
	upTo   string // the version of the last event or list that it has received
	// past is, by slot, the version of the last event that the previous grant had received when this
	// one took over. An event that is not newer was handled already, and its object may have been
	// deleted since.
	past map[int]string
}

// slotOf returns the slot in the label; -1 if there is none.
func slotOf(obj metav1.Object) int {
	slot, err := strconv.Atoi(obj.GetLabels()[v1alpha1.LabelSlot])
	if err != nil {
		return -1
	}
	return slot
}

// Add stores an object.
func (s *sink[T]) Add(obj any) error { return s.Update(obj) }

// Update stores an object.
func (s *sink[T]) Update(obj any) error {
	seen, err := objectcache.Received[T](obj)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.upTo = seen.GetResourceVersion()
	s.apply(seen, "")
	return nil
}

// apply stores an object of one of the grant's slots, if the events of that slot are taken from
// this grant; s.mu is held. asOf is the version of the list that shows it, "" for an event. The
// watches also show objects of slots that were dropped: an object that gets the label of one has
// left.
func (s *sink[T]) apply(obj metav1.Object, asOf string) {
	slot, version := slotOf(obj), cmp.Or(asOf, obj.GetResourceVersion())
	if s.holder[slot] != s {
		s.left(obj, version)
		return
	}
	if objectversion.Compare(version, s.past[slot]) <= 0 {
		return
	}
	s.store.PutListed(obj, !s.opened[slot], asOf)
}

// left removes an object, unless it is in a slot of another grant by now, or a newer version than
// the given one is stored; s.mu is held.
func (s *sink[T]) left(obj metav1.Object, version string) {
	key := objectcache.Key(obj)
	if known, ok := s.store.Find(key); ok && s.holder[slotOf(known)] == s {
		s.store.Delete(key, version)
	}
}

// Delete removes an object that was deleted, or left the grant's slots.
func (s *sink[T]) Delete(obj any) error {
	seen, err := objectcache.Received[T](obj)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.upTo = seen.GetResourceVersion()
	s.left(seen, s.upTo)
	return nil
}

// Replace stores a list. Objects that are not in it are removed, unless the stored version is newer
// than the list.
func (s *sink[T]) Replace(list []any, version string) error {
	seen := make([]metav1.Object, 0, len(list))
	for _, obj := range list {
		one, err := objectcache.Received[T](obj)
		if err != nil {
			return err
		}
		seen = append(seen, one)
	}
	s.replace(seen, version)
	s.synced()
	return nil
}

func (s *sink[T]) replace(list []metav1.Object, version string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.upTo = version
	s.takeOver()
	listed := map[types.NamespacedName]bool{}
	for _, obj := range list {
		listed[objectcache.Key(obj)] = true
		s.apply(obj, version)
	}
	for slot, holder := range s.holder {
		if holder != s {
			continue
		}
		for _, obj := range s.store.InSlot(slot) {
			if key := objectcache.Key(obj); !listed[key] && objectversion.Compare(version, obj.GetResourceVersion()) >= 0 {
				s.store.Delete(key, "")
			}
		}
	}
}

// takeOver switches to the events of a merged grant, from those of the grants that it replaces. The
// grants that these have replaced are older than its list, which began after they were ready.
func (s *sink[T]) takeOver() {
	for slot, old := range s.holder {
		if s.grant.replaces(old.grant) {
			s.holder[slot], s.past[slot] = s, old.upTo
		}
	}
}

// Resync does nothing.
func (*sink[T]) Resync() error { return nil }
