package machinefacts

import (
	"cmp"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// CompareAge orders objects, the oldest first, and those that were created at the same time by
// name.
func CompareAge[T metav1.Object](a, b T) int {
	x, y := a.GetCreationTimestamp(), b.GetCreationTimestamp()
	return cmp.Or(x.Compare(y.Time), cmp.Compare(a.GetName(), b.GetName()))
}

// OldestFirst returns the objects, the oldest first.
func OldestFirst[T metav1.Object](objects []T) []T {
	return slices.SortedFunc(slices.Values(objects), CompareAge[T])
}

// TimeIn returns the time in an annotation, and its text; zero and "" if there is none that is
// valid.
func TimeIn(o metav1.Object, annotation string) (at time.Time, text string) {
	text = o.GetAnnotations()[annotation]
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return time.Time{}, ""
	}
	return at, text
}
