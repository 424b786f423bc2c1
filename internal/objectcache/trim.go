package objectcache

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// Trim removes from an object what nothing here reads: its managed fields, which are about half of
// most objects, and of the status of a Node all but its capacity, its conditions and its volumes.
// The images of a Node alone are often larger than all else.
func Trim(obj metav1.Object) {
	obj.SetManagedFields(nil)
	if node, is := obj.(*corev1.Node); is {
		s := node.Status
		node.Status = corev1.NodeStatus{Capacity: s.Capacity, Conditions: s.Conditions, VolumesAttached: s.VolumesAttached}
	}
}

// trimAll trims the objects of a list, so that one of many pages does not have them whole in memory
// until the last one is read.
func trimAll(list runtime.Object) {
	_ = meta.EachListItem(list, func(item runtime.Object) error { // that of an unknown type is reported when it is stored
		if obj, is := item.(metav1.Object); is {
			Trim(obj)
		}
		return nil
	})
}
