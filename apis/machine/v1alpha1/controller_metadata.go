package v1alpha1

import "strings"

// IsMachineLabelOfControllers reports whether controllers write the label on Machines, regardless
// of what a client or a template has there.
func IsMachineLabelOfControllers(key string) bool {
	return key == LabelNode || key == LabelUpdateResult || strings.HasPrefix(key, FleetDomain)
}

// IsMachineSetLabelOfControllers reports whether controllers write the label on the MachineSets of
// a MachineDeployment, or on their Machines.
func IsMachineSetLabelOfControllers(key string) bool {
	switch key {
	case LabelMachineTemplateHash, LabelFreeze, LabelScaleUpDisabled:
		return true
	}
	return IsMachineLabelOfControllers(key)
}

// IsMachineAnnotationOfControllers reports whether controllers write the annotation on Machines, or
// delete a Machine for it. Users set AnnotationMachineConfig in templates, although it is the
// fleet's.
func IsMachineAnnotationOfControllers(key string) bool {
	switch key {
	case AnnotationMachineConfig:
		return false
	case AnnotationTriggerDeletion, AnnotationPriority, AnnotationMarkedForDeletionTime, AnnotationLastAppliedNodePreserveValue:
		return true
	}
	return strings.HasPrefix(key, FleetDomain)
}
