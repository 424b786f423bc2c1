package objectcache

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
)

// Handler returns a handler for an informer of client-go that calls f as an Objects calls those of
// OnChange: an object that was deleted and created anew under its name between two lists, which the
// informer reports as an update, is removed, and then appears. Objects that are no T are ignored.
func Handler[T metav1.Object](f func(before, after T)) cache.ResourceEventHandler {
	var none T
	return cache.ResourceEventHandlerFuncs{
		AddFunc: func(obj any) {
			if after, is := obj.(T); is {
				f(none, after)
			}
		},
		UpdateFunc: func(old, obj any) {
			before, was := old.(T)
			after, is := obj.(T)
			if was && is {
				change(before, after, f)
			}
		},
		DeleteFunc: func(obj any) {
			if last, missed := obj.(cache.DeletedFinalStateUnknown); missed {
				obj = last.Obj
			}
			if before, is := obj.(T); is {
				f(before, none)
			}
		},
	}
}
