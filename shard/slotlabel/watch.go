package slotlabel

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/cache"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/objectcache"
	"github.com/machine-controller-fleet/machine-controller-fleet/shard/slotlabel/policy"
)

// Watch caches the unlabeled objects. NewWatch returns one.
type Watch struct {
	informers map[policy.Kind]cache.SharedIndexInformer
}

// NewWatch returns a Watch of a fleet with the given number of slots. control is the cluster of the
// Machines, of which only namespace is served, "" means all; target is the cluster of the Nodes,
// nil if there is none.
func NewWatch(control, target metadata.Interface, namespace string, slots int) (*Watch, error) {
	w := &Watch{informers: map[policy.Kind]cache.SharedIndexInformer{}}
	selector := inNoSlot(slots)
	var errs []error
	for _, kind := range policy.Kinds() {
		client, in := control, namespace
		if kind == policy.Node {
			client, in = target, metav1.NamespaceAll
		}
		if client == nil {
			continue
		}
		source := objectcache.From(client.Resource(resource(kind)).Namespace(in))
		informer := cache.NewSharedIndexInformer(&objectcache.ListerWatcher{Source: source, Selector: selector},
			&metav1.PartialObjectMetadata{}, 0, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
		errs = append(errs, informer.SetTransform(essential))
		w.informers[kind] = informer
	}
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("watch unlabeled objects: %w", err)
	}
	return w, nil
}

// inNoSlot returns the selector of objects without a slot label, or with a label that names no slot
// of the fleet.
func inNoSlot(slots int) string {
	values := make([]string, slots)
	for i := range values {
		values[i] = policy.Value(i)
	}
	return v1alpha1.LabelSlot + " notin (" + strings.Join(values, ",") + ")"
}

func resource(kind policy.Kind) schema.GroupVersionResource {
	if kind == policy.Node {
		return corev1.SchemeGroupVersion.WithResource(kind.Resource())
	}
	return v1alpha1.SchemeGroupVersion.WithResource(kind.Resource())
}

// essential is the informers' transform: it keeps the fields that decide the slot. Of a Node these
// are its name and the Machine that it is bound to.
func essential(obj any) (any, error) {
	whole, ok := obj.(*metav1.PartialObjectMetadata)
	if !ok {
		return obj, nil
	}
	kept := &metav1.PartialObjectMetadata{TypeMeta: whole.TypeMeta, ObjectMeta: metav1.ObjectMeta{
		Namespace: whole.Namespace, Name: whole.Name, UID: whole.UID, ResourceVersion: whole.ResourceVersion,
		DeletionTimestamp: whole.DeletionTimestamp, OwnerReferences: whole.OwnerReferences,
	}}
	for _, key := range []string{v1alpha1.LabelSlot, v1alpha1.LabelNode} {
		if value, labeled := whole.Labels[key]; labeled {
			if kept.Labels == nil {
				kept.Labels = map[string]string{}
			}
			kept.Labels[key] = value
		}
	}
	if machine, bound := whole.Annotations[v1alpha1.AnnotationMachine]; bound {
		kept.Annotations = map[string]string{v1alpha1.AnnotationMachine: machine}
	}
	return kept, nil
}

// OnChange registers f for every unlabeled object that appears or changes, and, with gone set, that
// is removed: it was labeled or deleted. It is called before Run.
func (w *Watch) OnChange(f func(o policy.Object, gone bool)) error {
	var errs []error
	for kind, informer := range w.informers {
		_, err := informer.AddEventHandler(objectcache.Handler(func(before, after *metav1.PartialObjectMetadata) {
			f(policy.Of(kind, cmp.Or(after, before)), after == nil)
		}))
		errs = append(errs, err)
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("watch unlabeled objects: %w", err)
	}
	return nil
}

// Start begins to watch, until ctx ends. It calls known when all unlabeled objects of the control
// cluster are listed, and returns when those of the target cluster are listed, too, or ctx has
// ended.
func (w *Watch) Start(ctx context.Context, known func()) error {
	for _, informer := range w.informers {
		go informer.RunWithContext(ctx)
	}
	if !cache.WaitForCacheSync(ctx.Done(), w.knowsTrees) {
		return errors.New("unlabeled objects could not be listed in time")
	}
	known()
	if nodes, watched := w.informers[policy.Node]; watched && !cache.WaitForCacheSync(ctx.Done(), nodes.HasSynced) {
		return errors.New("unlabeled Nodes could not be listed in time")
	}
	return nil
}

// knowsTrees reports whether all unlabeled objects but Nodes are listed. Nodes are in another
// cluster and below no root.
func (w *Watch) knowsTrees() bool {
	for kind, informer := range w.informers {
		if kind != policy.Node && !informer.HasSynced() {
			return false
		}
	}
	return true
}

// Has reports whether there is an unlabeled object of that kind, namespace and name.
func (w *Watch) Has(kind policy.Kind, key types.NamespacedName) bool {
	_, ok := w.get(kind, key)
	return ok
}

func (w *Watch) get(kind policy.Kind, key types.NamespacedName) (o policy.Object, ok bool) {
	name := key.Name
	if key.Namespace != "" {
		name = key.String()
	}
	informer, watched := w.informers[kind]
	if !watched {
		return policy.Object{}, false
	}
	obj, _, _ := informer.GetStore().GetByKey(name) // of a local store; nil without an object
	meta, known := obj.(metav1.Object)
	if !known {
		return policy.Object{}, false
	}
	return policy.Of(kind, meta), true
}

// in returns the unlabeled objects of a namespace, without Nodes. There may be many, and it is
// called often.
func (w *Watch) in(namespace string) iter.Seq[policy.Object] {
	return func(yield func(policy.Object) bool) {
		for _, kind := range policy.Kinds() {
			if kind == policy.Node {
				continue
			}
			objs, err := w.informers[kind].GetIndexer().ByIndex(cache.NamespaceIndex, namespace)
			if err != nil {
				continue // the index was added by NewWatch, and cannot be missing
			}
			for unlabeled := range objects(kind, objs) {
				if !yield(unlabeled) {
					return
				}
			}
		}
	}
}

// all returns all unlabeled objects of a kind.
func (w *Watch) all(kind policy.Kind) iter.Seq[policy.Object] {
	return objects(kind, w.informers[kind].GetStore().List())
}

func objects(kind policy.Kind, objs []any) iter.Seq[policy.Object] {
	return func(yield func(policy.Object) bool) {
		for _, obj := range objs {
			if meta, ok := obj.(metav1.Object); ok && !yield(policy.Of(kind, meta)) {
				return
			}
		}
	}
}

// Roots returns references to the unlabeled roots of a namespace.
func (w *Watch) Roots(namespace string) (refs []corev1.ObjectReference) {
	for unlabeled := range w.in(namespace) {
		if unlabeled.Parent == "" {
			refs = append(refs, unlabeled.Ref())
		}
	}
	return refs
}

// Count returns the number of unlabeled objects of a kind, including all Nodes without a machine.
func (w *Watch) Count(kind policy.Kind) int {
	informer, watched := w.informers[kind]
	if !watched {
		return 0
	}
	return len(informer.GetStore().ListKeys())
}

// Key is the work of the holder of one slot in one namespace.
type Key struct {
	Namespace string
	Slot      int
}

// String returns the key for logs and traces.
func (k Key) String() string { return k.Namespace + "/slot " + strconv.Itoa(k.Slot) }
