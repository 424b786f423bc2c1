package machinefacts

import (
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
)

// CountsMinReady reports whether minReadySeconds counts below a root: the root's annotation
// overrides the fleet's setting.
func CountsMinReady(root metav1.Object, otherwise bool) bool {
	return setting(root, v1alpha1.AnnotationCountMinReady, otherwise)
}

// OmitsComponentsTaint reports whether Nodes below a root that were updated in place do not get the
// taint critical-components-not-ready: the root's annotation overrides the fleet's setting.
func OmitsComponentsTaint(root metav1.Object, otherwise bool) bool {
	return !setting(root, v1alpha1.AnnotationComponentsTaint, !otherwise)
}

// setting returns the value of an annotation of the root; otherwise if it has none, or one that is
// no bool.
func setting(root metav1.Object, annotation string, otherwise bool) bool {
	if is, err := strconv.ParseBool(root.GetAnnotations()[annotation]); err == nil {
		return is
	}
	return otherwise
}
