package objectcache

import (
	"context"
	"io"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
)

// Source lists and watches one kind of objects.
type Source struct {
	List  func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error)
	Watch func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error)
	// Health, if set, is updated by all that list and watch.
	Health *Health
	// end, if set, is called when what lists and watches has ended.
	end func()
}

// From creates a Source of a typed client.
func From[L runtime.Object](client interface {
	List(ctx context.Context, options metav1.ListOptions) (L, error)
	Watch(ctx context.Context, options metav1.ListOptions) (watch.Interface, error)
},
) Source {
	return Source{
		List: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			return client.List(ctx, options)
		},
		Watch: client.Watch,
	}
}

// Fields returns the source of the objects that a field selector selects.
func (s Source) Fields(selector string) Source {
	selected := s
	selected.List = func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
		options.FieldSelector = selector
		return s.List(ctx, options)
	}
	selected.Watch = func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
		options.FieldSelector = selector
		return s.Watch(ctx, options)
	}
	return selected
}

// ListerWatcher is for a reflector: the objects of a source that a label selector selects, "" for
// all.
type ListerWatcher struct {
	Source
	Selector string
}

var _ cache.ListerWatcherWithContext = (*ListerWatcher)(nil)

// IsWatchListSemanticsUnSupported keeps the reflector from streaming lists.
func (*ListerWatcher) IsWatchListSemanticsUnSupported() bool { return true }

// ListWithContext lists consistently, regardless of the reflector's options. A page after the first
// one belongs to the first one's version. Errors are the source's.
func (l *ListerWatcher) ListWithContext(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
	options.ResourceVersion, options.ResourceVersionMatch = "", ""
	options.LabelSelector = l.Selector
	list, err := l.Health.list(ctx, l, options)
	if err == nil {
		trimAll(list)
	}
	return list, err
}

// WatchWithContext watches. Errors are the source's, and io.EOF after the end of ctx: reflectors
// report any other one, although they were stopped.
func (l *ListerWatcher) WatchWithContext(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	options.LabelSelector = l.Selector
	l.Health.begin(l)
	events, err := l.Source.Watch(ctx, options)
	if err != nil && ctx.Err() != nil {
		return nil, io.EOF
	}
	if err != nil {
		l.Health.failed(l, err)
		return nil, err
	}
	l.Health.delivers(l)
	return events, nil
}

// End records that listing and watching have ended.
func (l *ListerWatcher) End() {
	l.Health.forget(l)
	if l.end != nil {
		l.end()
	}
}

// List is part of an older interface.
func (l *ListerWatcher) List(options metav1.ListOptions) (runtime.Object, error) {
	return l.ListWithContext(context.Background(), options) //nolint:forbidigo // the older interface has no context
}

// Watch is part of an older interface.
func (l *ListerWatcher) Watch(options metav1.ListOptions) (watch.Interface, error) {
	return l.WatchWithContext(context.Background(), options) //nolint:forbidigo // the older interface has no context
}
