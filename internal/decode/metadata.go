package decode

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/metadata"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
)

// atOnce is the maximum number of concurrent lists of a Metadata. For each, the API server reads
// all objects of a kind in a namespace: a replica that takes over hundreds of objects must not
// delay other clients.
const atOnce = 4

// Metadata lists the metadata of objects of the fleet's kinds from the API server. It is safe for
// concurrent use.
type Metadata struct {
	client metadata.Interface
	slots  chan struct{}
}

// NewMetadata returns a Metadata.
func NewMetadata(client metadata.Interface) *Metadata {
	return &Metadata{client: client, slots: make(chan struct{}, atOnce)}
}

// Each calls visit with each object of a resource in a namespace that the label selector selects;
// with "" all. It waits for other lists. Errors: the end of ctx, and those of a request.
func (m *Metadata) Each(ctx context.Context, resource, namespace, selector string, visit func(*metav1.PartialObjectMetadata)) error {
	select {
	case m.slots <- struct{}{}:
		defer func() { <-m.slots }()
	case <-ctx.Done():
		return ctx.Err()
	}
	all := m.client.Resource(v1alpha1.SchemeGroupVersion.WithResource(resource)).Namespace(namespace)
	return EachObject(ctx, "the "+resource+" of namespace "+namespace, metav1.ListOptions{LabelSelector: selector}, all.List, visit)
}

// EachObject calls visit with the metadata of each object that a list has.
func EachObject(
	ctx context.Context, what string, options metav1.ListOptions, list ListPage[*metav1.PartialObjectMetadataList],
	visit func(*metav1.PartialObjectMetadata),
) error {
	return UntilPage(ctx, what, options, list, func(page *metav1.PartialObjectMetadataList, _ []*Failure) bool {
		for i := range page.Items {
			visit(&page.Items[i])
		}
		return false
	})
}
