package scale

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/machinefacts"
)

// outOfStep returns machines that differ from their set in fields that can change without a new
// machine, in their new state: nodeTemplate, machine configuration and kind of class; of machines
// that are being deleted the configuration, which has the time for their drain. Failed machines are
// not changed: they are deleted or inspected.
func outOfStep(w World, standing []*v1alpha1.Machine) (changed []*v1alpha1.Machine) {
	template := &w.Set.Spec.Template.Spec
	for _, m := range w.Owned {
		configuration := Configuration(template.MachineConfiguration, m.Annotations[v1alpha1.AnnotationEffectiveCreationTimeout])
		if m.DeletionTimestamp != nil && !w.Undecodable[m.UID] && !machinefacts.Same(m.Spec.MachineConfiguration, configuration) {
			m = m.DeepCopy()
			m.Spec.MachineConfiguration = configuration
			changed = append(changed, m)
		}
	}
	for _, m := range standing {
		if machinefacts.HasFailed(m) || w.Undecodable[m.UID] {
			continue
		}
		configuration := Configuration(template.MachineConfiguration, m.Annotations[v1alpha1.AnnotationEffectiveCreationTimeout])
		if m.Spec.Class.Kind == template.Class.Kind &&
			machinefacts.Same(&m.Spec.NodeTemplateSpec, &template.NodeTemplateSpec) &&
			machinefacts.Same(m.Spec.MachineConfiguration, configuration) {
			continue
		}
		m = m.DeepCopy()
		m.Spec.Class.Kind = template.Class.Kind
		m.Spec.NodeTemplateSpec = *template.NodeTemplateSpec.DeepCopy()
		m.Spec.MachineConfiguration = configuration
		changed = append(changed, m)
	}
	return untouched(w, changed)
}

// Configuration is the machine configuration of a machine: that of its set's template, with the
// creation timeout of the annotation if it has one that is a duration. It may be the template's
// own, and must not be changed.
func Configuration(template *v1alpha1.MachineConfiguration, creationTimeout string) *v1alpha1.MachineConfiguration {
	if creationTimeout == "" {
		return template
	}
	timeout, err := time.ParseDuration(creationTimeout)
	if err != nil {
		return template
	}
	configuration := template.DeepCopy()
	if configuration == nil {
		configuration = &v1alpha1.MachineConfiguration{}
	}
	configuration.MachineCreationTimeout = &metav1.Duration{Duration: timeout}
	return configuration
}
