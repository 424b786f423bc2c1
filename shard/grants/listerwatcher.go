package grants

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
)

// Source lists and watches one kind of objects.
type Source struct {
	List  func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error)
	Watch func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error)
}

// From makes a Source of a typed client.
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

// consistent lists what is true now, whatever the reflector asks for: an API server's cache may be older than what an
// earlier holder of the slot has done.
type consistent struct {
	Source
	selector string
}

var _ cache.ListerWatcherWithContext = (*consistent)(nil)

// IsWatchListSemanticsUnSupported keeps the reflector from streaming lists, which not all API servers have.
func (*consistent) IsWatchListSemanticsUnSupported() bool { return true }

// ListWithContext lists consistently. A page after the first one belongs to the first one's version.
func (c *consistent) ListWithContext(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
	options.ResourceVersion, options.ResourceVersionMatch = "", ""
	options.LabelSelector = c.selector
	return c.Source.List(ctx, options)
}

// WatchWithContext watches.
func (c *consistent) WatchWithContext(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	options.LabelSelector = c.selector
	return c.Source.Watch(ctx, options)
}

// List is part of an older interface.
func (c *consistent) List(options metav1.ListOptions) (runtime.Object, error) {
	return c.ListWithContext(context.Background(), options) //nolint:forbidigo // the older interface has no context
}

// Watch is part of an older interface.
func (c *consistent) Watch(options metav1.ListOptions) (watch.Interface, error) {
	return c.WatchWithContext(context.Background(), options) //nolint:forbidigo // the older interface has no context
}
