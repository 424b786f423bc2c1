package leases

import (
	"context"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/machine-controller-fleet/machine-controller-fleet/internal/objectcache"
)

// Observer receives what a watch shows, from one goroutine at a time. It must return soon.
type Observer interface {
	// Listed is the consistent list that the watch starts from, also after a restart.
	Listed(leases []*coordinationv1.Lease)
	// Seen is a Lease that was added or changed.
	Seen(lease *coordinationv1.Lease)
	// Gone is a Lease that was deleted, in its last state.
	Gone(lease *coordinationv1.Lease)
}

// Watch shows the observer the fleet's Leases until ctx ends, also when connections and API servers
// fail.
func (s *Store) Watch(ctx context.Context, o Observer) {
	lists := &objectcache.ListerWatcher{Source: s.source(), Selector: s.selector()}
	reflector := cache.NewReflectorWithOptions(lists, &coordinationv1.Lease{}, &sink{o}, cache.ReflectorOptions{
		Name: "leases of fleet " + s.cfg.Fleet, Clock: s.cfg.Clock,
		// Without the watch no slot is taken over or handed over, so the back-off stays short.
		Backoff: &wait.Backoff{Duration: 100 * time.Millisecond, Factor: 2, Jitter: 0.5, Steps: 5, Cap: time.Second},
	})
	reflector.RunWithContext(ctx)
}

// source lists within the timeout, and watches until there was no event for too long.
func (s *Store) source() objectcache.Source {
	return objectcache.Source{
		List: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			ctx, cancel := context.WithTimeout(ctx, s.cfg.Timeout)
			defer cancel()
			return s.leases.List(ctx, options)
		},
		Watch: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			inner, end, err := s.begin(ctx, options)
			if err != nil {
				return nil, err
			}
			return s.whileBusy(inner, end), nil
		},
	}
}

// begin starts a watch within the timeout: over a dead connection, or from a server that hangs, no
// answer would ever arrive. end ends its request.
func (s *Store) begin(ctx context.Context, options metav1.ListOptions) (inner watch.Interface, end context.CancelFunc, err error) {
	ctx, end = context.WithCancel(ctx)
	answered := make(chan struct{})
	defer close(answered)
	go func() {
		late := s.cfg.Clock.NewTimer(s.cfg.Timeout)
		defer late.Stop()
		select {
		case <-answered:
		case <-late.C():
			end()
		}
	}()
	inner, err = s.leases.Watch(ctx, options)
	if err != nil {
		end()
	}
	return inner, end, err
}

// whileBusy ends a watch, and its request, that shows nothing: its connection may be dead without
// any error.
func (s *Store) whileBusy(inner watch.Interface, end context.CancelFunc) watch.Interface {
	events := make(chan watch.Event)
	outer := watch.NewProxyWatcher(events)
	go func() {
		defer close(events)
		defer end()
		defer inner.Stop()
		quiet := s.cfg.Clock.NewTimer(s.cfg.Quiet)
		defer quiet.Stop()
		for {
			select {
			case <-outer.StopChan():
				return
			case <-quiet.C():
				return
			case event, more := <-inner.ResultChan():
				if !more {
					return
				}
				quiet.Reset(s.cfg.Quiet)
				select {
				case events <- event:
				case <-outer.StopChan():
					return
				}
			}
		}
	}()
	return outer
}

// sink passes on what a reflector would store.
type sink struct{ Observer }

var _ cache.ReflectorStore = (*sink)(nil)

func leaseIn(obj any) (*coordinationv1.Lease, error) {
	lease, ok := obj.(*coordinationv1.Lease)
	if !ok {
		return nil, fmt.Errorf("expected a Lease from the watch, got %T", obj)
	}
	return lease, nil
}

func (s *sink) Add(obj any) error { return s.Update(obj) }

func (s *sink) Update(obj any) error {
	lease, err := leaseIn(obj)
	if err == nil {
		s.Seen(lease)
	}
	return err
}

func (s *sink) Delete(obj any) error {
	lease, err := leaseIn(obj)
	if err == nil {
		s.Gone(lease)
	}
	return err
}

func (s *sink) Replace(objs []any, _ string) error {
	leases := make([]*coordinationv1.Lease, 0, len(objs))
	for _, obj := range objs {
		lease, err := leaseIn(obj)
		if err != nil {
			return err
		}
		leases = append(leases, lease)
	}
	s.Listed(leases)
	return nil
}

func (*sink) Resync() error { return nil }
