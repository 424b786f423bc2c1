package objectcache

import (
	"fmt"
	"slices"
	"strconv"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/objectversion"
)

// The indexes that all kinds have: by the slot label, by the namespace and the UID of the
// controller, and by the namespace of objects without one.
const (
	indexBySlot       = "slot"
	indexByController = "controller"
	indexOrphans      = "orphans"
)

// Objects are the objects of one kind. Reading is safe for concurrent use, also from handlers;
// create one with New.
type Objects[T metav1.Object] struct {
	indexer  cache.Indexer
	handlers []func(before, after T)
	within   string // the only namespace; "" means all

	feeding sync.Mutex // one change at a time, until all handlers were called
	silent  map[types.NamespacedName]bool
	parts   []*Objects[T] // that are called, too
}

// New creates an empty one.
func New[T metav1.Object]() *Objects[T] {
	return &Objects[T]{
		silent: map[types.NamespacedName]bool{},
		indexer: cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{
			cache.NamespaceIndex: cache.MetaNamespaceIndexFunc,
			indexBySlot:          index(func(obj T) []string { return []string{obj.GetLabels()[v1alpha1.LabelSlot]} }),
			indexByController:    index(controllerOf[T]),
			indexOrphans:         index(orphaned[T]),
		}),
	}
}

func controllerOf[T metav1.Object](obj T) []string {
	if owner := metav1.GetControllerOfNoCopy(obj); owner != nil {
		return []string{underKey(obj.GetNamespace(), owner.UID)}
	}
	return nil
}

// underKey returns the value of the index of controllers for the children of one controller. It has
// the namespace, since a controller is always in that of its child: a client that writes an owner
// reference can know the UID of an object elsewhere.
func underKey(namespace string, controller types.UID) string {
	return namespace + "/" + string(controller)
}

func orphaned[T metav1.Object](obj T) []string {
	if metav1.GetControllerOfNoCopy(obj) == nil {
		return []string{obj.GetNamespace()}
	}
	return nil
}

func index[T metav1.Object](values func(obj T) []string) cache.IndexFunc {
	return func(obj any) ([]string, error) {
		typed, ok := obj.(T)
		if !ok {
			return nil, fmt.Errorf("expected an object of another kind, got %T", obj)
		}
		return values(typed), nil
	}
}

// AddIndex has By find objects by the values of the index. It is called before the first Apply.
// Errors: the name is in use.
func (o *Objects[T]) AddIndex(name string, values func(obj T) []string) error {
	if err := o.indexer.AddIndexers(cache.Indexers{name: index(values)}); err != nil {
		return fmt.Errorf("index %s: %w", name, err)
	}
	return nil
}

// OnChange makes f be called with every object that appears (before is nil), changes, or is removed
// (after is nil). An object that was deleted and created anew under its name is removed, and then
// appears: before and after always have one UID. It is called before the first Apply; f must return
// soon, and must not apply or remove anything.
func (o *Objects[T]) OnChange(f func(before, after T)) { o.handlers = append(o.handlers, f) }

// part returns those of a namespace, which it shares with o: it must not be written. Its handlers
// are called from begin until end.
func (o *Objects[T]) part(namespace string) (part *Objects[T], begin, end func()) {
	part = &Objects[T]{indexer: o.indexer, within: namespace}
	begin = func() {
		o.feeding.Lock()
		defer o.feeding.Unlock()
		o.parts = append(o.parts, part)
	}
	end = func() {
		o.feeding.Lock()
		defer o.feeding.Unlock()
		o.parts = slices.DeleteFunc(o.parts, func(other *Objects[T]) bool { return other == part })
	}
	return part, begin, end
}

// Get returns an object.
func (o *Objects[T]) Get(key types.NamespacedName) (obj T, ok bool) {
	if o.within != "" && key.Namespace != o.within {
		return obj, false
	}
	found, exists, err := o.indexer.GetByKey(text(key))
	if err != nil || !exists {
		return obj, false
	}
	obj, ok = found.(T)
	return obj, ok
}

// Shows reports whether this is an object that is stored, in any version, and not another one of
// its name.
func (o *Objects[T]) Shows(obj T) bool {
	found, known := o.Get(Key(obj))
	return known && found.GetUID() == obj.GetUID()
}

// text returns the indexer's form of a key: the name alone for objects without a namespace.
func text(key types.NamespacedName) string {
	if key.Namespace == "" {
		return key.Name
	}
	return key.String()
}

// Key returns the key of an object.
func Key(obj metav1.Object) types.NamespacedName {
	return types.NamespacedName{Namespace: obj.GetNamespace(), Name: obj.GetName()}
}

// All returns all objects, in no order.
func (o *Objects[T]) All() []T {
	if o.within != "" {
		return o.In(o.within)
	}
	return typed[T](o.indexer.List())
}

// In returns the objects of a namespace.
func (o *Objects[T]) In(namespace string) []T { return o.By(cache.NamespaceIndex, namespace) }

// Of returns the objects of a slot.
func (o *Objects[T]) Of(slot int) []T { return o.By(indexBySlot, strconv.Itoa(slot)) }

// Under returns the objects in the namespace of a controller that name its UID as that of their
// controller. An object in another namespace that names it does not belong to the controller.
func (o *Objects[T]) Under(controller metav1.Object) []T {
	return o.By(indexByController, underKey(controller.GetNamespace(), controller.GetUID()))
}

// Orphans returns the objects of a namespace that have no controller.
func (o *Objects[T]) Orphans(namespace string) []T { return o.By(indexOrphans, namespace) }

// By returns the objects of which an index has the value; none when there is no such index.
func (o *Objects[T]) By(index, value string) []T {
	found, err := o.indexer.ByIndex(index, value)
	if err != nil {
		return nil
	}
	objs := typed[T](found)
	if o.within != "" {
		objs = slices.DeleteFunc(objs, func(obj T) bool { return obj.GetNamespace() != o.within })
	}
	return objs
}

func typed[T any](found []any) []T {
	objs := make([]T, 0, len(found))
	for _, obj := range found {
		if t, ok := obj.(T); ok {
			objs = append(objs, t)
		}
	}
	return objs
}

// Len returns the number of objects.
func (o *Objects[T]) Len() int {
	if o.within != "" {
		return len(o.In(o.within))
	}
	return len(o.indexer.ListKeys())
}

// Apply stores a version of an object, unless there is a newer one already, or this one. Handlers
// are not called for a silent object before it is announced, or no longer silent; if they know it,
// it is removed for them.
func (o *Objects[T]) Apply(obj T, silent bool) {
	o.store(obj, silent, "")
}

// store is Apply of what an event shows, with asOf "", or a list of that version.
func (o *Objects[T]) store(obj T, silent bool, asOf string) {
	o.feeding.Lock()
	defer o.feeding.Unlock()
	o.apply(obj, silent, asOf)()
}

// isKnown reports whether the stored version of an object is that which was read, or a newer one.
// asOf is the version of the consistent list that was read, "" for an event. Such a list shows an
// older object than is stored, although it is newer than both, when etcd was restored meanwhile:
// what is stored does not exist any more.
func isKnown(read, stored metav1.Object, asOf string) bool {
	order := objectversion.Compare(read.GetResourceVersion(), stored.GetResourceVersion())
	return order == 0 || order < 0 && (asOf == "" || objectversion.Compare(asOf, stored.GetResourceVersion()) < 0)
}

// apply stores an object, and returns what calls the handlers. Its caller holds feeding until that
// was called.
func (o *Objects[T]) apply(obj T, silent bool, asOf string) (report func()) {
	key := Key(obj)
	before, known := o.Get(key)
	if known && isKnown(obj, before, asOf) {
		return func() {}
	}
	_ = o.indexer.Add(obj) // never fails: the key of an object is its name
	var none T
	reported := known && !o.silent[key]
	if silent {
		o.silent[key] = true
	} else {
		delete(o.silent, key)
	}
	switch {
	case reported && silent:
		return func() { o.report(before, none) }
	case reported:
		return func() { change(before, obj, o.report) }
	case !silent:
		return func() { o.report(none, obj) }
	}
	return func() {}
}

// change calls f with the change of an object under one name; for an object in the place of
// another, with the removal of that and with the appearance of this.
func change[T metav1.Object](before, after T, f func(before, after T)) {
	if before.GetUID() == after.GetUID() {
		f(before, after)
		return
	}
	var none T
	f(before, none)
	f(none, after)
}

// Remove forgets an object, unless there is a newer version of it than the given one, which may be
// "".
func (o *Objects[T]) Remove(key types.NamespacedName, version string) {
	o.feeding.Lock()
	defer o.feeding.Unlock()
	o.remove(key, version)()
}

// remove forgets an object, and returns what calls the handlers. Its caller holds feeding until
// that was called.
func (o *Objects[T]) remove(key types.NamespacedName, version string) (report func()) {
	before, known := o.Get(key)
	if !known || version != "" && objectversion.Compare(version, before.GetResourceVersion()) < 0 {
		return func() {}
	}
	_ = o.indexer.Delete(before) // never fails
	if o.silent[key] {
		delete(o.silent, key)
		return func() {}
	}
	var none T
	return func() { o.report(before, none) }
}

// Announce calls the handlers with all objects of a slot, as with new ones: for the silent ones
// this is the first time.
func (o *Objects[T]) Announce(slot int) {
	o.feeding.Lock()
	defer o.feeding.Unlock()
	var none T
	for _, obj := range o.Of(slot) {
		delete(o.silent, Key(obj))
		o.report(none, obj)
	}
}

func (o *Objects[T]) report(before, after T) {
	for _, handle := range o.handlers {
		handle(before, after)
	}
	if len(o.parts) == 0 {
		return
	}
	var none T
	about := after
	if any(after) == any(none) {
		about = before
	}
	for _, part := range o.parts {
		if part.within == about.GetNamespace() {
			part.report(before, after)
		}
	}
}
