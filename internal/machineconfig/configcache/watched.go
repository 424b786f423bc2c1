package configcache

import (
	"context"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/internal/objectcache"
)

// watched has the objects of one kind while it is watched.
type watched[T metav1.Object] struct {
	name     string
	from     objectcache.Source
	changed  func() // called when the kind was listed
	handlers []func(before, after T)

	calling sync.Mutex // one handler at a time

	mu     sync.Mutex
	store  *objectcache.Store[T]
	listed bool
}

func newWatched[T metav1.Object](name string, from objectcache.Source, changed func()) *watched[T] {
	return &watched[T]{name: name, from: from, changed: changed, store: objectcache.NewStore[T]()}
}

// handle adds a handler.
func (w *watched[T]) handle(f func(before, after T)) { w.handlers = append(w.handlers, f) }

func (w *watched[T]) isListed() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.listed
}

// objects returns the objects; none before they were listed.
func (w *watched[T]) objects() *objectcache.Store[T] {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.store
}

// run watches until ctx ends, and then forgets all objects without a call of a handler.
func (w *watched[T]) run(ctx context.Context) {
	store := objectcache.NewStore[T]()
	w.mu.Lock()
	w.store = store
	w.mu.Unlock()
	defer func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.store, w.listed = objectcache.NewStore[T](), false
	}()
	store.OnChange(func(before, after T) {
		if w.isListed() {
			w.report(before, after)
		}
	})
	objectcache.Watch(ctx, w.name, w.from, "", &objectcache.Mirror[T]{Store: store, Mine: store.Each, Listed: func() {
		w.mu.Lock()
		w.listed = true
		w.mu.Unlock()
		w.changed()
	}})
}

// announce calls the handlers with all objects, as with new ones.
func (w *watched[T]) announce() {
	var none T
	for _, obj := range w.objects().All() {
		w.report(none, obj)
	}
}

func (w *watched[T]) report(before, after T) {
	w.calling.Lock()
	defer w.calling.Unlock()
	for _, handle := range w.handlers {
		handle(before, after)
	}
}
