package objectcache

import (
	"cmp"
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/cache"

	"github.com/machine-controller-fleet/machine-controller-fleet/internal/decode"
)

// backoff returns the backoff of a failing watch: an API server that was unavailable for a minute
// is tried again within seconds.
func backoff() *wait.Backoff {
	return &wait.Backoff{Duration: 100 * time.Millisecond, Factor: 2, Jitter: 0.5, Steps: 10, Cap: 5 * time.Second}
}

// Page is the number of objects in one page of a list.
const Page = 500

// Watch lists and watches what a label selector selects, "" for all, until ctx ends. All lists are
// paged, including those after a watch has ended. The name is for logs.
func Watch(ctx context.Context, name string, from Source, selector string, into cache.ReflectorStore) {
	lists := &ListerWatcher{Source: from, Selector: selector}
	defer lists.End()
	reflector := cache.NewReflectorWithOptions(lists, nil, into,
		cache.ReflectorOptions{Name: name, TypeDescription: name, Backoff: backoff()})
	reflector.WatchListPageSize = Page
	reflector.RunWithContext(ctx)
}

// Mirror stores the objects of one Watch, regardless of their slots. Store and Mine are required.
type Mirror[T metav1.Object] struct {
	Store *Store[T]
	// Mine returns the stored objects of this watch.
	Mine func() []metav1.Object
	// Keep returns a reduced object and whether it is stored; nil stores all objects as they are.
	Keep func(obj T) (kept T, is bool)
	// Listed is called after each list; nil if no function has to be called.
	Listed func()
}

// Add stores an object.
func (m *Mirror[T]) Add(obj any) error { return m.Update(obj) }

// Update stores an object.
func (m *Mirror[T]) Update(obj any) error {
	_, err := m.put(obj, "")
	return err
}

// put stores an object of an event, with asOf "", or of a list of that version, and returns its
// key. The object is not changed afterwards, because others read it from then on.
func (m *Mirror[T]) put(obj any, asOf string) (types.NamespacedName, error) {
	seen, err := Received[T](obj)
	if err != nil {
		return types.NamespacedName{}, err
	}
	key := Key(seen)
	if whole, decoded := seen.(T); decoded && m.Keep != nil {
		kept, is := m.Keep(whole)
		if !is {
			m.Store.Delete(key, cmp.Or(asOf, seen.GetResourceVersion()))
			return key, nil
		}
		seen = kept
	}
	m.Store.PutListed(seen, false, asOf)
	return key, nil
}

// Delete removes an object.
func (m *Mirror[T]) Delete(obj any) error {
	seen, err := Received[T](obj)
	if err != nil {
		return err
	}
	m.Store.Delete(Key(seen), seen.GetResourceVersion())
	return nil
}

// Replace stores a list, and removes the objects that are not in it.
func (m *Mirror[T]) Replace(list []any, version string) error {
	listed := map[types.NamespacedName]bool{}
	for _, obj := range list {
		key, err := m.put(obj, version)
		if err != nil {
			return err
		}
		listed[key] = true
	}
	for _, obj := range m.Mine() {
		if !listed[Key(obj)] {
			m.Store.Delete(Key(obj), "")
		}
	}
	if m.Listed != nil {
		m.Listed()
	}
	return nil
}

// Resync does nothing.
func (*Mirror[T]) Resync() error { return nil }

// Received returns an object from a watch, a T or a *decode.Failure, without what Trim removes.
// Errors: the object is of another type.
func Received[T metav1.Object](obj any) (metav1.Object, error) {
	switch seen := obj.(type) {
	case *decode.Failure:
		return seen.Small(), nil
	case T:
		Trim(seen)
		return seen, nil
	}
	var want T
	return nil, fmt.Errorf("watch: expected a %T, got %T", want, obj)
}
