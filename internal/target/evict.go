package target

import (
	"context"

	policyv1 "k8s.io/api/policy/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/internal/kubeclient"
)

// evictOnce calls the eviction API once: client-go itself would block the caller and retry up to
// ten times when the answer has a Retry-After.
func evictOnce(client kubeclient.Interface) func(ctx context.Context, eviction *policyv1.Eviction) error {
	return func(ctx context.Context, eviction *policyv1.Eviction) error {
		return client.PolicyV1().RESTClient().Post().AbsPath("/api/v1").Namespace(eviction.Namespace).
			Resource("pods").Name(eviction.Name).SubResource("eviction").Body(eviction).MaxRetries(0).Do(ctx).Error()
	}
}
