package machinefacts

import (
	"reflect"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
)

// Same reports whether two values of the API mean the same: no list is an empty one, and quantities
// are compared by their amount. Most values are also equal field by field, which takes half the
// time to find.
func Same[T any](a, b T) bool {
	return reflect.DeepEqual(a, b) || apiequality.Semantic.DeepEqual(a, b)
}
