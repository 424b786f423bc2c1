package objectcache

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"sync/atomic"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
)

// bytesOfObject is the memory that an object takes in addition to its encoding, at least.
const bytesOfObject = 1 << 10

// boundedPage is how many objects are in one page of a Source with a bound.
const boundedPage = 100

// SizeOf returns about how many bytes an object takes, of which only generated types know their
// content: that of others is as large as their JSON.
func SizeOf(obj any) int64 {
	if sized, is := obj.(interface{ Size() int }); is {
		return int64(sized.Size()) + bytesOfObject
	}
	document, err := json.Marshal(obj)
	if err != nil {
		return bytesOfObject
	}
	return int64(len(document)) + bytesOfObject
}

// PagesAtMost returns a function that lists as the given one does, for one list in pages: it fails
// when the objects have more bytes together. 0 is no bound.
func PagesAtMost[L runtime.Object](
	most int64, list func(ctx context.Context, options metav1.ListOptions) (L, error),
) func(ctx context.Context, options metav1.ListOptions) (L, error) {
	if most == 0 {
		return list
	}
	taken := int64(0)
	return func(ctx context.Context, options metav1.ListOptions) (L, error) {
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

// AtMost returns the source whose objects take at most that many bytes together, for one Watch of
// a cluster that may send without end. A list with more fails. A watch fails when it has sent as
// much again, so that a list shows what is left of that.
func (s Source) AtMost(most int64) Source {
	taken := &atomic.Int64{}
	bounded := s
	bounded.List = func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
		if options.Continue == "" {
			taken.Store(0)
		}
		options.Limit = boundedPage
		list, err := s.List(ctx, options)
		if err != nil {
			return nil, err
		}
		err = meta.EachListItem(list, func(obj runtime.Object) error {
			if taken.Add(SizeOf(obj)) > most {
				return fmt.Errorf("expected objects of together at most %d MiB, got more", most>>20)
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
		return list, nil
	}
	bounded.Watch = func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
		events, err := s.Watch(ctx, options)
		if err != nil {
			return nil, err
		}
		return mapEvents(events, func(event watch.Event) watch.Event {
			if taken.Add(SizeOf(event.Object)) > 2*most {
				expired := apierrors.NewResourceExpired("the watch has sent much since its list").Status()
				return watch.Event{Type: watch.Error, Object: &expired}
			}
			return event
		}), nil
	}
	return bounded
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
