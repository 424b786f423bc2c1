package drainer

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/machine-controller-fleet/machine-controller-fleet/internal/objectcache"
)

// watchErrors are the current errors of sources that cannot be listed or watched.
type watchErrors struct {
	// changed is called at the first error of a source, and when it has none any more.
	changed func()

	mu   sync.Mutex
	errs map[string]error // by operation
}

func newWatchErrors(changed func()) *watchErrors {
	return &watchErrors{changed: changed, errs: map[string]error{}}
}

// record records the result of an operation.
func (w *watchErrors) record(ctx context.Context, what string, err error) {
	if ctx.Err() != nil {
		return // the session has ended
	}
	w.mu.Lock()
	_, was := w.errs[what]
	if err != nil {
		w.errs[what] = err
	} else {
		delete(w.errs, what)
	}
	w.mu.Unlock()
	if was != (err != nil) {
		w.changed()
	}
}

// first returns one of the errors, the same while they persist; "" if there is none.
func (w *watchErrors) first() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, what := range slices.Sorted(maps.Keys(w.errs)) {
		return w.errs[what].Error()
	}
	return ""
}

// follow wraps a source to record its errors.
func (w *watchErrors) follow(name string, from objectcache.Source) objectcache.Source {
	followed := from
	followed.List = func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
		list, err := from.List(ctx, options)
		w.record(ctx, name+" list", err)
		return list, err
	}
	followed.Watch = func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
		watcher, err := from.Watch(ctx, options)
		w.record(ctx, name+" watch", err)
		return watcher, err
	}
	return followed
}

// WatchError returns why the objects of the session are incomplete or may be old; "" if they are
// neither.
func (s *watchSession) WatchError() string {
	return cmp.Or(s.watchErrors.first(), s.cluster.watchErrors.first())
}
