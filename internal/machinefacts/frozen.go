package machinefacts

import "github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"

// CreatesNone reports whether a set must not create machines: it is frozen, or must not be scaled
// up.
func CreatesNone(set *v1alpha1.MachineSet) bool {
	_, disabled := set.Labels[v1alpha1.LabelScaleUpDisabled]
	return disabled || IsFrozen(set)
}

// IsFrozen reports whether a set has the label freeze=True. Any other value, like true, freezes
// nothing.
func IsFrozen(set *v1alpha1.MachineSet) bool { return set.Labels[v1alpha1.LabelFreeze] == "True" }
