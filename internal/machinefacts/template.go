package machinefacts

import (
	"maps"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
)

// TemplateLabels returns the labels that a machine has from a template: those that controllers
// write are their own. It may be changed.
func TemplateLabels(t *v1alpha1.MachineTemplateSpec) map[string]string {
	return withoutKeys(t.Labels, v1alpha1.IsMachineLabelOfControllers)
}

// TemplateAnnotations returns the annotations that a machine has from a template: those that
// controllers write, or delete a machine for, would take effect on each machine, and on the one
// that is created in its place. It may be changed.
func TemplateAnnotations(t *v1alpha1.MachineTemplateSpec) map[string]string {
	return withoutKeys(t.Annotations, v1alpha1.IsMachineAnnotationOfControllers)
}

func withoutKeys(all map[string]string, excluded func(key string) bool) map[string]string {
	all = maps.Clone(all)
	maps.DeleteFunc(all, func(key, _ string) bool { return excluded(key) })
	return all
}
