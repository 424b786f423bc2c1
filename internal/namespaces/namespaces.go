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
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/objectcache"
)

// Namespaces has the annotations of Namespaces, and which of them are selected. New returns one. It
// is safe for concurrent use.
type Namespaces struct {
	informer cache.SharedIndexInformer
	selector labels.Selector
	changes  []func(namespace string)
	denied   atomic.Bool // the API server has not permitted the last list or watch
}

// New returns Namespaces of the control cluster, which watch while Run runs. only is the one
// Namespace that is served; "" means all. selector selects those that the fleet serves.
func New(control metadata.Interface, only string, selector labels.Selector) (*Namespaces, error) {
	n := &Namespaces{selector: selector}
	source := objectcache.From(control.Resource(corev1.SchemeGroupVersion.WithResource("namespaces")))
	source.Watch = n.permitted(source.Watch)
	if only != "" {
		source = source.Fields(fields.OneTermEqualSelector(metav1.ObjectNameField, only).String())
	}
	n.informer = cache.NewSharedIndexInformer(&objectcache.ListerWatcher{Source: source}, &metav1.PartialObjectMetadata{}, 0, cache.Indexers{})
	_, err := n.informer.AddEventHandler(objectcache.Handler(n.changed))
	if err := errors.Join(err, n.informer.SetTransform(n.essential), n.informer.SetWatchErrorHandlerWithContext(n.failed)); err != nil {
		return nil, fmt.Errorf("watch Namespaces: %w", err)
	}
	return n, nil
}

// essential is the informer's transform: it keeps the name, the fleet's annotations, and the labels
// that the selector names.
func (n *Namespaces) essential(obj any) (any, error) {
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
	requirements, _ := n.selector.Requirements()
	for _, r := range requirements {
		if value, labeled := whole.Labels[r.Key()]; labeled {
			metav1.SetMetaDataLabel(&kept.ObjectMeta, r.Key(), value)
		}
	}
	return kept, nil
}

// OnChange adds a function that is called with every Namespace whose annotations have changed, or
// that is selected now or not any more, and with "" when they become known, or cannot be read any
// more, which may affect all. f must return soon. Call OnChange before Run.
func (n *Namespaces) OnChange(f func(namespace string)) { n.changes = append(n.changes, f) }

func (n *Namespaces) notify(namespace string) {
	for _, f := range n.changes {
		f(namespace)
	}
}

// changed notifies of a Namespace whose annotations or whose selection differ.
func (n *Namespaces) changed(before, after *metav1.PartialObjectMetadata) {
	if !maps.Equal(annotationsOf(before), annotationsOf(after)) || !n.selector.Empty() && n.selects(before) != n.selects(after) {
		n.notify(cmp.Or(after, before).Name)
	}
}

func (n *Namespaces) selects(namespace *metav1.PartialObjectMetadata) bool {
	return namespace != nil && n.selector.Matches(labels.Set(namespace.Labels))
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

// Selected reports whether a Namespace is selected; it is not known while the API server has not
// shown that Namespace. A selector that selects all needs no Namespace to be known.
func (n *Namespaces) Selected(namespace string) (selected, known bool) {
	if n.selector.Empty() {
		return true, true
	}
	obj, known, err := n.informer.GetStore().GetByKey(namespace)
	if err != nil || !known {
		return false, false
	}
	found, _ := obj.(*metav1.PartialObjectMetadata)
	return n.selects(found), true
}
