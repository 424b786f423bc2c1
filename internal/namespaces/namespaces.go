package namespaces

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/objectcache"
)

// Namespaces has the annotations of Namespaces. New returns one. It is safe for concurrent use.
type Namespaces struct {
	informer cache.SharedIndexInformer
	changes  []func(namespace string)
	denied   atomic.Bool // the API server has not permitted the last list or watch
}

// New returns Namespaces of the control cluster, which watch while Run runs. only is the one
// Namespace that is served; "" means all.
func New(control metadata.Interface, only string) (*Namespaces, error) {
	n := &Namespaces{}
	source := objectcache.From(control.Resource(corev1.SchemeGroupVersion.WithResource("namespaces")))
	source.Watch = n.permitted(source.Watch)
	if only != "" {
		source = source.Fields(fields.OneTermEqualSelector(metav1.ObjectNameField, only).String())
	}
	n.informer = cache.NewSharedIndexInformer(&objectcache.ListerWatcher{Source: source}, &metav1.PartialObjectMetadata{}, 0, cache.Indexers{})
	_, err := n.informer.AddEventHandler(objectcache.Handler(n.changed))
	if err := errors.Join(err, n.informer.SetTransform(essential), n.informer.SetWatchErrorHandlerWithContext(n.failed)); err != nil {
		return nil, fmt.Errorf("watch Namespaces: %w", err)
	}
	return n, nil
}

// essential is the informer's transform: it keeps the name and the fleet's annotations.
func essential(obj any) (any, error) {
	whole, ok := obj.(*metav1.PartialObjectMetadata)
	if !ok {
		return obj, nil
	}
	kept := &metav1.PartialObjectMetadata{TypeMeta: whole.TypeMeta, ObjectMeta: metav1.ObjectMeta{
		Name: whole.Name, UID: whole.UID, ResourceVersion: whole.ResourceVersion,
	}}
	for key, value := range whole.Annotations {
		if strings.HasPrefix(key, v1alpha1.FleetDomain) {
			metav1.SetMetaDataAnnotation(&kept.ObjectMeta, key, value)
		}
	}
	return kept, nil
}

// OnChange adds a function that is called with every Namespace whose annotations have changed, and
// with "" when they become known, or cannot be read any more, which may affect all. f must return
// soon. Call OnChange before Run.
func (n *Namespaces) OnChange(f func(namespace string)) { n.changes = append(n.changes, f) }

func (n *Namespaces) notify(namespace string) {
	for _, f := range n.changes {
		f(namespace)
	}
}

// changed notifies of a Namespace whose annotations differ.
func (n *Namespaces) changed(before, after *metav1.PartialObjectMetadata) {
	if !maps.Equal(annotationsOf(before), annotationsOf(after)) {
		n.notify(cmp.Or(after, before).Name)
	}
}

func annotationsOf(namespace *metav1.PartialObjectMetadata) map[string]string {
	if namespace == nil {
		return nil
	}
	return namespace.Annotations
}

// permitted returns a watch that records that it is permitted. The reflector begins it with what a
// list has shown.
func (n *Namespaces) permitted(
	begin func(context.Context, metav1.ListOptions) (watch.Interface, error),
) func(context.Context, metav1.ListOptions) (watch.Interface, error) {
	return func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
		events, err := begin(ctx, options)
		if err == nil && n.denied.Swap(false) {
			n.notify("")
		}
		return events, err
	}
}

// failed handles an error of the list or the watch. Without the right to list and watch the
// annotations are not known, regardless of what was read before.
func (n *Namespaces) failed(ctx context.Context, r *cache.Reflector, err error) {
	if !apierrors.IsForbidden(err) {
		cache.DefaultWatchErrorHandler(ctx, r, err)
		return
	}
	if n.denied.Swap(true) {
		return
	}
	klog.FromContext(ctx).Error(err, "Namespaces cannot be read; deletions are held. Grant list and watch of namespaces")
	n.notify("")
}

// Run watches until ctx ends.
func (n *Namespaces) Run(ctx context.Context) {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if cache.WaitForCacheSync(ctx.Done(), n.informer.HasSynced) {
			n.notify("")
		}
	}()
	n.informer.RunWithContext(ctx)
	<-ended
}

// Known reports whether the annotations are known: they were listed, and the right to read them is
// still there.
func (n *Namespaces) Known() bool { return n.informer.HasSynced() && !n.denied.Load() }

// Denied reports whether the API server has refused to have Namespaces read.
func (n *Namespaces) Denied() bool { return n.denied.Load() }

// Annotation returns the value of an annotation below v1alpha1.FleetDomain of a Namespace.
func (n *Namespaces) Annotation(namespace, key string) (value string, ok bool) {
	obj, known, err := n.informer.GetStore().GetByKey(namespace)
	if err != nil || !known {
		return "", false
	}
	found, _ := obj.(*metav1.PartialObjectMetadata)
	value, ok = annotationsOf(found)[key]
	return value, ok
}
