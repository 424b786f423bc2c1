package validation

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/labels"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
)

// MaxReplicas is how many machines a deployment or a set may have, and how many more or fewer a
// rollout may allow. No cluster has as many; the sum of two is far from what 32 bits can count, and
// so is that of all sets of a deployment.
const MaxReplicas = 1_000_000

// MaxSelector is the size that a selector may have. All selectors of a namespace are compared with
// each of its machines.
const MaxSelector = 100

// SelectorSize returns how many labels, expressions and values of expressions a selector has.
func SelectorSize(selector *metav1.LabelSelector) int {
	if selector == nil {
		return 0
	}
	size := len(selector.MatchLabels) + len(selector.MatchExpressions)
	for i := range selector.MatchExpressions {
		size += len(selector.MatchExpressions[i].Values)
	}
	return size
}

// ValidateMachineDeployment returns what keeps the deployment from working, or nothing.
func ValidateMachineDeployment(d *v1alpha1.MachineDeployment) field.ErrorList {
	spec := field.NewPath("spec")
	errs := validateReplicas(d.Spec.Replicas, spec.Child("replicas"))
	errs = append(errs, validateSelector(d.Spec.Selector, d.Spec.Template.Labels, spec.Child("selector"))...)
	errs = append(errs, validateNotOurs(d.Spec.Selector, spec.Child("selector"), v1alpha1.IsMachineSetLabelOfControllers)...)
	errs = append(errs, validateStrategy(&d.Spec, spec.Child("strategy"))...)
	return append(errs, validateTemplate(&d.Spec.Template.Spec, spec.Child("template", "spec"))...)
}

// ValidateMachineSet returns what keeps the set from working, or nothing.
func ValidateMachineSet(s *v1alpha1.MachineSet) field.ErrorList {
	spec := field.NewPath("spec")
	errs := validateReplicas(s.Spec.Replicas, spec.Child("replicas"))
	errs = append(errs, validateSelector(s.Spec.Selector, s.Spec.Template.Labels, spec.Child("selector"))...)
	errs = append(errs, validateNotOurs(s.Spec.Selector, spec.Child("selector"), v1alpha1.IsMachineLabelOfControllers)...)
	return append(errs, validateTemplate(&s.Spec.Template.Spec, spec.Child("template", "spec"))...)
}

// ValidateMachine returns what keeps the machine from working, or nothing.
func ValidateMachine(m *v1alpha1.Machine) field.ErrorList {
	return append(validateName(m.Name), validateClass(m.Spec.Class, field.NewPath("spec", "class"))...)
}

// validateName makes sure that the name of a machine can be the value of a label, which its Node
// carries, and the name of a host.
func validateName(name string) (errs field.ErrorList) {
	for _, problem := range utilvalidation.IsValidLabelValue(name) {
		errs = append(errs, field.Invalid(field.NewPath("metadata", "name"), name, "is the value of a label of the Node, so it "+problem+"; create a machine with another name"))
	}
	return errs
}

// ValidateMachineClass returns what keeps machines of the class from working, or nothing. The
// provider's own spec is for its driver to check.
func ValidateMachineClass(c *v1alpha1.MachineClass) field.ErrorList {
	if c.NodeTemplate == nil {
		return nil
	}
	var errs field.ErrorList
	path := field.NewPath("nodeTemplate")
	for _, resource := range []corev1.ResourceName{corev1.ResourceCPU, "gpu", corev1.ResourceMemory} {
		if _, ok := c.NodeTemplate.Capacity[resource]; !ok {
			errs = append(errs, field.Required(path.Child("capacity").Key(string(resource)), "cpu, gpu and memory are required"))
		}
	}
	for _, text := range []struct{ name, value string }{
		{"instanceType", c.NodeTemplate.InstanceType},
		{"region", c.NodeTemplate.Region},
		{"zone", c.NodeTemplate.Zone},
	} {
		if text.value == "" {
			errs = append(errs, field.Required(path.Child(text.name), "must not be empty"))
		}
	}
	return errs
}

// Reason returns the reason of the Valid condition for what one of the functions above found: that
// of the first error that has its own, else ReasonInvalidSpec; "" for no errors.
func Reason(errs field.ErrorList) string {
	for _, err := range errs {
		switch err.Origin {
		case v1alpha1.ReasonSelectorMatchesNothing, v1alpha1.ReasonSelectorMatchesEverything:
			return err.Origin
		}
	}
	if len(errs) > 0 {
		return v1alpha1.ReasonInvalidSpec
	}
	return ""
}

// EventReason returns the reason of the Event that reports a reason of the Valid condition: MCM's,
// where that has one.
func EventReason(reason string) string {
	if reason == v1alpha1.ReasonSelectorMatchesEverything {
		return v1alpha1.EventSelectingAll
	}
	return reason
}

func validateReplicas(replicas int32, path *field.Path) field.ErrorList {
	if replicas < 0 {
		return field.ErrorList{field.Invalid(path, replicas, "must not be negative")}
	}
	if replicas > MaxReplicas {
		return field.ErrorList{field.Invalid(path, replicas, fmt.Sprintf("must not be more than %d", MaxReplicas))}
	}
	return nil
}

// validateSelector makes sure that a machine created from the template is found again, and no
// machine of another object is.
func validateSelector(selector *metav1.LabelSelector, template map[string]string, path *field.Path) field.ErrorList {
	if selector == nil {
		missing := field.Required(path, "must be there, to find the machines again")
		return field.ErrorList{missing.WithOrigin(v1alpha1.ReasonSelectorMatchesNothing)}
	}
	if size := SelectorSize(selector); size > MaxSelector { // before all that takes time for each of them
		large := fmt.Sprintf("must not have more than %d labels, expressions and values, and has %d", MaxSelector, size)
		return field.ErrorList{field.Invalid(path, field.OmitValueType{}, large)}
	}
	if errs := metav1validation.ValidateLabelSelector(selector, metav1validation.LabelSelectorValidationOptions{}, path); len(errs) > 0 {
		// It goes through a map: unsorted, the message of a condition would differ between passes.
		slices.SortFunc(errs, func(a, b *field.Error) int { return strings.Compare(a.Error(), b.Error()) })
		return errs
	}
	parsed, err := metav1.LabelSelectorAsSelector(selector)
	if err != nil {
		return field.ErrorList{field.Invalid(path, field.OmitValueType{}, err.Error())}
	}
	if parsed.Empty() {
		greedy := field.Invalid(path, "", "must not be empty: it would select every machine")
		return field.ErrorList{greedy.WithOrigin(v1alpha1.ReasonSelectorMatchesEverything)}
	}
	if !parsed.Matches(labels.Set(template)) {
		blind := field.Invalid(path, parsed.String(), "is not matching with spec.template.metadata.labels")
		return field.ErrorList{blind.WithOrigin(v1alpha1.ReasonSelectorMatchesNothing)}
	}
	return nil
}

// validateNotOurs makes sure that no selector uses labels that the controllers write, whichever the
// operator is: what was created would not match it any more, be released, and be created again
// without end. The selector of a MachineSet may use the hash of its template, by which Machine
// Controller Manager and the fleet distinguish the MachineSets of a MachineDeployment.
func validateNotOurs(selector *metav1.LabelSelector, path *field.Path, isOurs func(label string) bool) field.ErrorList {
	if selector == nil || SelectorSize(selector) > MaxSelector {
		return nil // validateSelector reports it
	}
	var errs field.ErrorList
	const reason = "is written by the controllers and cannot be selected by"
	for _, label := range slices.Sorted(maps.Keys(selector.MatchLabels)) {
		if isOurs(label) {
			errs = append(errs, field.Forbidden(path.Child("matchLabels").Key(label), reason))
		}
	}
	for i, requirement := range selector.MatchExpressions {
		if isOurs(requirement.Key) {
			errs = append(errs, field.Forbidden(path.Child("matchExpressions").Index(i).Child("key"), reason))
		}
	}
	return errs
}

func validateTemplate(spec *v1alpha1.MachineSpec, path *field.Path) field.ErrorList {
	errs := validateClass(spec.Class, path.Child("class"))
	if spec.ProviderID != "" {
		errs = append(errs, field.Forbidden(path.Child("providerID"), "must not be set: all machines of the template would have the same VM"))
	}
	return errs
}

func validateClass(class v1alpha1.ClassSpec, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if class.Kind == "" {
		errs = append(errs, field.Required(path.Child("kind"), "Kind is required"))
	}
	if class.Name == "" {
		errs = append(errs, field.Required(path.Child("name"), "Name is required"))
	}
	return errs
}
