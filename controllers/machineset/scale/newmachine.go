package scale

import (
	"maps"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/machinefacts"
)

// NewMachine returns the object of the machine that a set creates for an ordinal, in no slot. A
// finalizer of the template is not copied: no machine would end, nor be replaced.
func NewMachine(set *v1alpha1.MachineSet, ordinal int64) *v1alpha1.Machine {
	template := set.Spec.Template.DeepCopy()
	m := &v1alpha1.Machine{
		ObjectMeta: metav1.ObjectMeta{
			Name: machinefacts.Name(set.Name, set.UID, ordinal), Namespace: set.Namespace,
			Labels: machinefacts.TemplateLabels(template), Annotations: machinefacts.TemplateAnnotations(template),
			Finalizers:      []string{v1alpha1.FinalizerName},
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(set, v1alpha1.SchemeGroupVersion.WithKind("MachineSet"))},
		},
		Spec: template.Spec,
	}
	ours := map[string]string{
		v1alpha1.AnnotationPriority: v1alpha1.PriorityDefault,
		v1alpha1.AnnotationOrdinal:  strconv.FormatInt(ordinal, 10),
	}
	if timeout := set.Annotations[v1alpha1.AnnotationEffectiveCreationTimeout]; timeout != "" {
		ours[v1alpha1.AnnotationEffectiveCreationTimeout] = timeout
		m.Spec.MachineConfiguration = Configuration(m.Spec.MachineConfiguration, timeout)
	}
	if m.Annotations == nil {
		m.Annotations = map[string]string{}
	}
	maps.Copy(m.Annotations, ours)
	return m
}
