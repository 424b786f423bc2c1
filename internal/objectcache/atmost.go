package objectcache

import (
	"context"
	"fmt"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/machine-controller-fleet/machine-controller-fleet/internal/decode"
)

const (
	// boundedPage is how many objects are in one page of a Source with a bound. A pod has 800 values,
	// and an answer at most 50,000.
	boundedPage = 50
	// answersOfList is how many times what objects may take together the answers with their list may
	// have: most is trimmed.
	answersOfList = 4
	// timeOfList is how long one list may take. API servers keep a version for as long.
	timeOfList = 5 * time.Minute
)

// PagesAtMost returns a function that lists as the given one does, for one list in pages, which are
// smaller: it fails when the objects take more memory together. 0 is no bound.
func PagesAtMost[L runtime.Object](
	most int64, list func(ctx context.Context, options metav1.ListOptions) (L, error),
) func(ctx context.Context, options metav1.ListOptions) (L, error) {
	if most == 0 {
		return list
	}
	taken := int64(0)
	return func(ctx context.Context, options metav1.ListOptions) (L, error) {
		options.Limit = max(options.Limit*boundedPage/Page, 1)
		page, err := list(ctx, options)
		if err != nil {
			return page, err
		}
		return page, meta.EachListItem(page, func(obj runtime.Object) error {
			if taken += SizeOf(obj); taken > most {
				return fmt.Errorf("expected objects of together at most %d MiB, got more", most>>20)
			}
			return nil
		})
	}
}

// AtMost returns the source whose objects take at most that much memory together, for one Watch of
// a cluster that may send without end. A list with more fails. A watch fails when it has sent as
// much again, so that a list shows what is left of that.
func (s Source) AtMost(most int64) Source {
	return s.Within(NewMemory(most), func(obj runtime.Object) runtime.Object { return obj })
}

// Within returns the source as AtMost does, with a memory that others have a part of, too, until
// its Watch ends. trim returns what is kept of an object: it counts alone, and is all that is kept
// of a page when the next one is read. A list is returned as a whole, without pages.
func (s Source) Within(memory *Memory, trim func(runtime.Object) runtime.Object) Source {
	taken := &share{of: memory}
	bounded := s
	bounded.end = taken.release
	bounded.List = func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
		taken.release()
		ctx, cancel := context.WithTimeout(decode.AtMost(ctx, answersOfList*memory.most), timeOfList)
		defer cancel()
		return s.whole(ctx, options, func(obj runtime.Object) (runtime.Object, error) {
			obj = trim(obj)
			return obj, taken.list(SizeOf(obj))
		})
	}
	bounded.Watch = func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
		events, err := s.Watch(ctx, options)
		if err != nil {
			return nil, err
		}
		return mapEvents(events, func(event watch.Event) watch.Event {
			event.Object = trim(event.Object)
			if !taken.event(SizeOf(event.Object)) {
				expired := apierrors.NewResourceExpired("the watch has sent much since its list").Status()
				return watch.Event{Type: watch.Error, Object: &expired}
			}
			return event
		}), nil
	}
	return bounded
}

// whole returns all pages of a list, with what keep returns of its objects. Errors: those of the
// requests and of keep; pages without end.
func (s Source) whole(
	ctx context.Context, options metav1.ListOptions, keep func(runtime.Object) (runtime.Object, error),
) (*internalversion.List, error) {
	all, reading := &internalversion.List{}, decode.NewReading(ctx, boundedPage)
	for options.Continue = ""; ; {
		page, err := decode.NextPage(ctx, reading, options, s.List)
		if err != nil {
			return nil, err
		}
		err = meta.EachListItem(page, func(obj runtime.Object) error {
			kept, err := keep(obj)
			all.Items = append(all.Items, kept)
			return err
		})
		if err != nil {
			return nil, err
		}
		from, err := meta.ListAccessor(page)
		if err != nil {
			return nil, err
		}
		all.ResourceVersion, options.Continue = from.GetResourceVersion(), from.GetContinue()
		if options.Continue == "" {
			return all, nil
		}
	}
}

// mappedWatch is a watch whose events are changed. watch.Filter would leave its goroutine behind
// that has an event which is not received after Stop.
type mappedWatch struct {
	watch.Interface

	events  chan watch.Event
	stopped chan struct{}
	stop    func()
}

// mapEvents returns a watch with the results of f for the events of another one.
func mapEvents(of watch.Interface, f func(watch.Event) watch.Event) watch.Interface {
	w := &mappedWatch{Interface: of, events: make(chan watch.Event), stopped: make(chan struct{})}
	w.stop = sync.OnceFunc(func() { close(w.stopped) })
	go func() {
		defer close(w.events)
		for event := range of.ResultChan() {
			select {
			case w.events <- f(event):
			case <-w.stopped:
				return
			}
		}
	}()
	return w
}

// ResultChan returns the changed events.
func (w *mappedWatch) ResultChan() <-chan watch.Event { return w.events }

// Stop ends both watches.
func (w *mappedWatch) Stop() {
	w.stop()
	w.Interface.Stop()
}
