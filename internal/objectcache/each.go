package objectcache

import (
	"context"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/machine-controller-fleet/machine-controller-fleet/internal/decode"
)

// FromEach is From for a client with a decode.Config: an object that cannot be decoded is a
// *decode.Failure among the others, in lists and in watches.
func FromEach[L runtime.Object](client interface {
	List(ctx context.Context, options metav1.ListOptions) (L, error)
	Watch(ctx context.Context, options metav1.ListOptions) (watch.Interface, error)
},
) Source {
	return Source{
		List: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			list, err := client.List(ctx, options)
			failures, err := decode.Missing(err)
			if err != nil || len(failures) == 0 {
				return list, err
			}
			return withFailures(list, failures)
		},
		Watch: client.Watch,
	}
}

// withFailures returns the list with a Failure for each object that it lacks.
func withFailures(list runtime.Object, failures []*decode.Failure) (runtime.Object, error) {
	from, err := meta.ListAccessor(list)
	if err != nil {
		return nil, err
	}
	all := &internalversion.List{ListMeta: metav1.ListMeta{
		ResourceVersion: from.GetResourceVersion(), Continue: from.GetContinue(), RemainingItemCount: from.GetRemainingItemCount(),
	}}
	if all.Items, err = meta.ExtractList(list); err != nil {
		return nil, err
	}
	for _, f := range failures {
		all.Items = append(all.Items, f)
	}
	return all, nil
}
