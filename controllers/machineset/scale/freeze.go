package scale

import (
	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/machinefacts"
)

// unfreeze ends a freeze when it is requested. Where the label was removed by hand, the note of the
// fleet's freeze is removed, too: a label that a user adds later is the user's.
func unfreeze(w World) (v Verdict, requested bool) {
	_, requested = w.Set.Annotations[v1alpha1.AnnotationUnfreeze]
	_, noted := w.Set.Annotations[v1alpha1.AnnotationOvershooting]
	if !requested && (!noted || machinefacts.IsFrozen(w.Set)) {
		return Verdict{}, false
	}
	set := w.Set.DeepCopy()
	delete(set.Annotations, v1alpha1.AnnotationUnfreeze)
	delete(set.Annotations, v1alpha1.AnnotationOvershooting)
	if requested {
		delete(set.Labels, v1alpha1.LabelFreeze)
	}
	return Verdict{Do: Save, Set: set}, true
}

// frozen returns the condition while the set has the label. The reason is that of the fleet's
// freeze, else that of Machine Controller Manager, which may have written it.
func frozen(w World) machinefacts.Condition {
	why, noted := w.Set.Annotations[v1alpha1.AnnotationOvershooting]
	is := machinefacts.ConditionOfSet(&w.Set.Status, v1alpha1.MachineSetFrozen)
	switch {
	case !machinefacts.IsFrozen(w.Set):
		return machinefacts.Condition{}
	case noted:
		return machinefacts.True(v1alpha1.ReasonOverShootingReplicaCount,
			why+"; it creates no machines until there are fewer, or until it has the annotation "+v1alpha1.AnnotationUnfreeze)
	case is.IsTrue():
		return is
	}
	return machinefacts.True(v1alpha1.ReasonFreezeLabel,
		"The MachineSet has the label "+v1alpha1.LabelFreeze+"=True, and creates no machines")
}
