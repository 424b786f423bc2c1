package target

import (
	"context"

	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/client-go/kubernetes"
)

// evictOnce asks the eviction API once: client-go by itself would wait in our place, and ask up to ten times, when the
// answer names a time to come again.
func evictOnce(client kubernetes.Interface) func(ctx context.Context, eviction *policyv1.Eviction) error {
	return func(ctx context.Context, eviction *policyv1.Eviction) error {
		return client.PolicyV1().RESTClient().Post().AbsPath("/api/v1").Namespace(eviction.Namespace).
			Resource("pods").Name(eviction.Name).SubResource("eviction").Body(eviction).MaxRetries(0).Do(ctx).Error()
	}
}
