package remediation

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/disruption"
)

// Namespaces has the annotations of Namespaces.
type Namespaces interface {
	// Known reports whether the annotations are known, and Denied whether the right to read them is
	// missing.
	Known() bool
	Denied() bool
	// Annotation returns the value of an annotation of a Namespace.
	Annotation(namespace, key string) (value string, ok bool)
	// OnChange adds a function that is called with each Namespace whose annotations have changed, and
	// with "" when all may have.
	OnChange(changed func(namespace string))
}

var (
	// errNamespacesUnknown means that thresholds cannot be determined: the annotations of Namespaces
	// are not known yet.
	errNamespacesUnknown = errors.New("the annotations of Namespaces are not known yet")
	// errNotCounted means that the thresholds are new, and were not compared with the counts yet.
	errNotCounted = errors.New("the thresholds were not compared with the counts yet")
)

// thresholds determines which thresholds apply to roots.
type thresholds struct {
	flags      disruption.Thresholds
	namespaces Namespaces
}

// of returns the thresholds that apply to a root, and why an annotation with others is ignored; ""
// if none is. Without the right to read Namespaces those that were read last apply: deletions are
// held then, and roots report that. Errors: errNamespacesUnknown, errNotCounted.
func (t thresholds) of(root metav1.Object, standing disruption.Snapshots) (is disruption.Thresholds, ignored string, err error) {
	if !t.namespaces.Known() && !t.namespaces.Denied() {
		return t.flags, "", errNamespacesUnknown
	}
	all, invalid := t.all(root)
	is, _, displaced, counted := standing.For(all)
	if !counted {
		return is, "", errNotCounted
	}
	if displaced {
		invalid = append(invalid, fmt.Sprintf(
			"annotation %s: more than %d different thresholds are in use; have several MachineDeployments and Namespaces use the same",
			v1alpha1.AnnotationCircuitBreaker, disruption.MaxThresholds))
	}
	if len(invalid) == 0 {
		return is, "", nil
	}
	return is, fmt.Sprintf("An annotation with thresholds is ignored, and %s applies: %s", is, strings.Join(invalid, "; ")), nil
}

// all returns the thresholds of a root in the order in which they apply: those of its annotation,
// of its Namespace's, and of the flags. invalid has a text for each annotation that is ignored.
func (t thresholds) all(root metav1.Object) (all []disruption.Thresholds, invalid []string) {
	all = []disruption.Thresholds{t.flags}
	add := func(text string, ok bool, where string) {
		if !ok {
			return
		}
		is, err := disruption.ParseThresholds(text, all[0])
		if err != nil {
			invalid = append(invalid, fmt.Sprintf("annotation %s of the %s: %v", v1alpha1.AnnotationCircuitBreaker, where, err))
			return
		}
		all = slices.Insert(all, 0, is)
	}
	text, ok := t.namespaces.Annotation(root.GetNamespace(), v1alpha1.AnnotationCircuitBreaker)
	add(text, ok, "Namespace")
	text, ok = root.GetAnnotations()[v1alpha1.AnnotationCircuitBreaker]
	add(text, ok, "object")
	return all, invalid
}

// inUse returns the thresholds of annotations by namespace, each once, that of the Namespace first.
func (t thresholds) inUse(roots []metav1.Object) map[string][]disruption.Thresholds {
	wanted, known := map[string][]disruption.Thresholds{}, map[string]map[disruption.Thresholds]bool{}
	add := func(namespace string, all []disruption.Thresholds) {
		if known[namespace] == nil {
			known[namespace] = map[disruption.Thresholds]bool{t.flags: true}
		}
		for _, is := range slices.Backward(all) {
			if !known[namespace][is] {
				known[namespace][is] = true
				wanted[namespace] = append(wanted[namespace], is)
			}
		}
	}
	var own []metav1.Object
	for _, root := range roots {
		if _, ok := root.GetAnnotations()[v1alpha1.AnnotationCircuitBreaker]; ok {
			own = append(own, root)
		} else if known[root.GetNamespace()] == nil {
			all, _ := t.all(root)
			add(root.GetNamespace(), all)
		}
	}
	slices.SortFunc(own, func(a, b metav1.Object) int { return cmp.Compare(a.GetName(), b.GetName()) })
	for _, root := range own {
		all, _ := t.all(root)
		add(root.GetNamespace(), all)
	}
	return wanted
}
