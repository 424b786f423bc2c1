package validation

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
)

// KindOfClasses is what class.kind has to be; every other kind means the same.
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
		"KernelDeadlock", "ReadonlyFilesystem", "CorruptDockerOverlay2", "FrequentKubeletRestart", "FrequentDockerRestart", "FrequentContainerdRestart",
		"FrequentUnregisterNetDevice", "KubeletUnhealthy", "ContainerRuntimeUnhealthy", "XfsShutdown", "CperHardwareErrorFatal", "NTPProblem",
	}
}

func remarksOnConditions(list string, path *field.Path) (remarks []string) {
	for name := range strings.SplitSeq(list, ",") {
		switch name = strings.TrimSpace(name); {
		case name == "" || slices.Contains(knownConditions(), name):
		case name == string(corev1.NodeReady):
			remarks = append(remarks, fmt.Sprintf("%s: no Node on which %s is not False counts as healthy", path, name))
		default:
			remarks = append(remarks, fmt.Sprintf("%s: %q is a condition that neither kubelets nor node-problem-detector report by default, and has no effect on a Node without it", path, name))
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
		if !slices.Contains(effects, taint.Effect) || len(utilvalidation.IsQualifiedName(taint.Key)) > 0 || len(utilvalidation.IsValidLabelValue(taint.Value)) > 0 {
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
