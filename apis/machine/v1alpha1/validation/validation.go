package validation

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
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
		errs = append(errs, field.Invalid(field.NewPath("metadata", "name"), name,
			"is the value of a label of the Node, so it "+problem+"; create a machine with another name"))
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
		invalid := field.Invalid(path, "", "must not be empty: it would select every machine")
		return field.ErrorList{invalid.WithOrigin(v1alpha1.ReasonSelectorMatchesEverything)}
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

// validateStrategy checks what belongs to the strategy in effect. Fields of another strategy are
// ignored.
func validateStrategy(spec *v1alpha1.MachineDeploymentSpec, path *field.Path) field.ErrorList {
	strategy := spec.Strategy
	switch strategy.Type {
	case v1alpha1.RecreateMachineDeploymentStrategyType:
		return nil
	case v1alpha1.RollingUpdateMachineDeploymentStrategyType:
		if strategy.RollingUpdate == nil {
			return field.ErrorList{field.Required(path.Child("rollingUpdate"), "type RollingUpdate needs it")}
		}
		return validateLimits(strategy.RollingUpdate.UpdateConfiguration, spec.Replicas, path.Child("rollingUpdate"))
	case v1alpha1.InPlaceUpdateMachineDeploymentStrategyType:
		if strategy.InPlaceUpdate == nil {
			return field.ErrorList{field.Required(path.Child("inPlaceUpdate"), "type InPlaceUpdate needs it")}
		}
		return validateInPlaceUpdate(strategy.InPlaceUpdate, spec.Replicas, path.Child("inPlaceUpdate"))
	case "":
		return validateNoStrategy(strategy, spec.Replicas, path)
	default:
		return field.ErrorList{field.Invalid(path.Child("type"), strategy.Type,
			"strategy type must be one of [InPlaceUpdate Recreate RollingUpdate]")}
	}
}

func validateInPlaceUpdate(update *v1alpha1.InPlaceUpdateMachineDeployment, replicas int32, path *field.Path) field.ErrorList {
	errs := validateLimits(update.UpdateConfiguration, replicas, path)
	switch update.OrchestrationType {
	case v1alpha1.OrchestrationTypeAuto, v1alpha1.OrchestrationTypeManual:
	default:
		errs = append(errs, field.Invalid(path.Child("orchestrationType"), update.OrchestrationType,
			"orchestrationType must be either Auto or Manual"))
	}
	return errs
}

// validateNoStrategy treats an empty type as a RollingUpdate, each of whose limits may be missing.
// MCM rejects an empty type, so that no manifest of MCM's relies on inPlaceUpdate having no effect
// here, and a user who wrote inPlaceUpdate does not expect the VMs to be replaced.
func validateNoStrategy(strategy v1alpha1.MachineDeploymentStrategy, replicas int32, path *field.Path) field.ErrorList {
	if strategy.InPlaceUpdate != nil {
		return field.ErrorList{field.Required(path.Child("type"), "inPlaceUpdate needs type InPlaceUpdate")}
	}
	if strategy.RollingUpdate == nil {
		return nil
	}
	var errs field.ErrorList
	path = path.Child("rollingUpdate")
	if limit := strategy.RollingUpdate.MaxUnavailable; limit != nil {
		errs = append(errs, validateLimit(limit, replicas, path.Child("maxUnavailable"))...)
	}
	if limit := strategy.RollingUpdate.MaxSurge; limit != nil {
		errs = append(errs, validateLimit(limit, replicas, path.Child("maxSurge"))...)
	}
	return errs
}

func validateLimits(limits v1alpha1.UpdateConfiguration, replicas int32, path *field.Path) field.ErrorList {
	errs := validateLimit(limits.MaxUnavailable, replicas, path.Child("maxUnavailable"))
	return append(errs, validateLimit(limits.MaxSurge, replicas, path.Child("maxSurge"))...)
}

// validateLimit requires a number of machines that can be counted. It may be negative, as in MCM;
// it then counts as 0.
func validateLimit(limit *intstr.IntOrString, replicas int32, path *field.Path) field.ErrorList {
	if limit == nil {
		return field.ErrorList{field.Required(path, "must be a number, or a percentage such as 25%")}
	}
	machines, err := intstr.GetScaledValueFromIntOrPercent(limit, int(replicas), true)
	if err != nil {
		return field.ErrorList{field.Invalid(path, limit.String(), "must be a number, or a percentage such as 25%")}
	}
	if machines < math.MinInt32 || machines > MaxReplicas { // a percentage can come to more than 64 bits hold
		return field.ErrorList{field.Invalid(path, limit.String(), fmt.Sprintf("must not be more than %d machines", MaxReplicas))}
	}
	return nil
}

// KindOfClasses is the valid value of class.kind; every other kind means the same.
const KindOfClasses = "MachineClass"

// RemarksOnMachineDeployment returns what works, as in MCM, and hardly as its author expects.
func RemarksOnMachineDeployment(spec *v1alpha1.MachineDeploymentSpec) []string {
	path := field.NewPath("spec")
	remarks := slices.Concat(
		negative(path.Child("minReadySeconds"), spec.MinReadySeconds),
		negative(path.Child("autoPreserveFailedMachineMax"), spec.AutoPreserveFailedMachineMax),
		negative(path.Child("revisionHistoryLimit"), orZero(spec.RevisionHistoryLimit)),
		negative(path.Child("progressDeadlineSeconds"), orZero(spec.ProgressDeadlineSeconds)),
	)
	return append(remarks, remarksOnTemplate(&spec.Template.Spec, path.Child("template", "spec"))...)
}

// RemarksOnMachineSet returns what works, as in MCM, and hardly as its author expects.
func RemarksOnMachineSet(spec *v1alpha1.MachineSetSpec) []string {
	path := field.NewPath("spec")
	remarks := slices.Concat(
		negative(path.Child("minReadySeconds"), spec.MinReadySeconds),
		negative(path.Child("autoPreserveFailedMachineMax"), spec.AutoPreserveFailedMachineMax),
	)
	return append(remarks, remarksOnTemplate(&spec.Template.Spec, path.Child("template", "spec"))...)
}

func remarksOnTemplate(spec *v1alpha1.MachineSpec, path *field.Path) (remarks []string) {
	if kind := spec.Class.Kind; kind != "" && kind != KindOfClasses {
		remarks = append(remarks, fmt.Sprintf("%s: %q is read as %s", path.Child("class", "kind"), kind, KindOfClasses))
	}
	if c := spec.MachineConfiguration; c != nil {
		for _, timeout := range []struct {
			name  string
			value *metav1.Duration
		}{
			{"drainTimeout", c.MachineDrainTimeout},
			{"healthTimeout", c.MachineHealthTimeout},
			{"creationTimeout", c.MachineCreationTimeout},
			{"inPlaceUpdateTimeout", c.MachineInPlaceUpdateTimeout},
			{"machinePreserveTimeout", c.MachinePreserveTimeout},
		} {
			if timeout.value != nil && timeout.value.Duration < 0 {
				remarks = append(remarks, fmt.Sprintf("%s: %s counts as 0, no time at all", path.Child(timeout.name), timeout.value.Duration))
			}
		}
		remarks = append(remarks, negative(path.Child("maxEvictRetries"), orZero(c.MaxEvictRetries))...)
		if c.NodeConditions != nil {
			remarks = append(remarks, remarksOnConditions(*c.NodeConditions, path.Child("nodeConditions"))...)
		}
	}
	return append(remarks, remarksOnNode(&spec.NodeTemplateSpec, path.Child("nodeTemplate"))...)
}

// knownConditions returns the types of Node conditions of kubelets, and of node-problem-detector as
// it is configured by default.
func knownConditions() []string {
	return []string{
		"MemoryPressure", "DiskPressure", "PIDPressure", "NetworkUnavailable",
		"KernelDeadlock", "ReadonlyFilesystem", "CorruptDockerOverlay2", "FrequentKubeletRestart", "FrequentDockerRestart",
		"FrequentContainerdRestart", "FrequentUnregisterNetDevice", "KubeletUnhealthy", "ContainerRuntimeUnhealthy", "XfsShutdown",
		"CperHardwareErrorFatal", "NTPProblem",
	}
}

func remarksOnConditions(list string, path *field.Path) (remarks []string) {
	for name := range strings.SplitSeq(list, ",") {
		switch name = strings.TrimSpace(name); {
		case name == "" || slices.Contains(knownConditions(), name):
		case name == string(corev1.NodeReady):
			remarks = append(remarks, fmt.Sprintf("%s: no Node on which %s is not False counts as healthy", path, name))
		default:
			remarks = append(remarks, fmt.Sprintf("%s: %q is a condition that neither kubelets nor node-problem-detector report by default, "+
				"and has no effect on a Node without it", path, name))
		}
	}
	return remarks
}

// remarksOnNode returns what an API server refuses on a Node, together with all that is valid.
func remarksOnNode(n *v1alpha1.NodeTemplateSpec, path *field.Path) (remarks []string) {
	refused := func(path *field.Path) {
		remarks = append(remarks, path.String()+": no Node may have it; the API server refuses all of nodeTemplate when the VM has joined")
	}
	for _, key := range slices.Sorted(maps.Keys(n.Labels)) {
		if len(utilvalidation.IsQualifiedName(key)) > 0 || len(utilvalidation.IsValidLabelValue(n.Labels[key])) > 0 {
			refused(path.Child("metadata", "labels").Key(key))
		}
	}
	for _, key := range slices.Sorted(maps.Keys(n.Annotations)) {
		if len(utilvalidation.IsQualifiedName(strings.ToLower(key))) > 0 {
			refused(path.Child("metadata", "annotations").Key(key))
		}
	}
	effects := []corev1.TaintEffect{corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule, corev1.TaintEffectNoExecute}
	for i, taint := range n.Spec.Taints {
		if !slices.Contains(effects, taint.Effect) || len(utilvalidation.IsQualifiedName(taint.Key)) > 0 ||
			len(utilvalidation.IsValidLabelValue(taint.Value)) > 0 {
			refused(path.Child("spec", "taints").Index(i))
		}
	}
	if !apiequality.Semantic.DeepEqual(n.Spec, corev1.NodeSpec{Taints: n.Spec.Taints}) {
		remarks = append(remarks, path.Child("spec").String()+": what is there besides taints has no effect")
	}
	return remarks
}

func negative(path *field.Path, n int32) []string {
	if n >= 0 {
		return nil
	}
	return []string{fmt.Sprintf("%s: %d counts as 0", path, n)}
}

func orZero(n *int32) int32 {
	if n == nil {
		return 0
	}
	return *n
}
