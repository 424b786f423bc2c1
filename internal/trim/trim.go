// Package trim makes objects smaller before they go into the caches of informers. What it takes away is never read by
// the fleet, and its patches, which are differences, never touch it.
package trim

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// ManagedFields is an informer's transform: it drops metadata.managedFields. Anything that is no object passes.
func ManagedFields(obj any) (any, error) {
	if o, ok := obj.(metav1.Object); ok && o.GetManagedFields() != nil {
		o.SetManagedFields(nil)
	}
	return obj, nil
}
