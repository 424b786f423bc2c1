package scale

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/machinefacts"
)

// unfreeze ends a freeze when it is requested. Where the label was removed by hand, the note of the fleet's freeze is removed, too:
// a label that a user adds later is the user's.
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

// setFrozen sets the condition while the set has the label. The reason is that of the fleet's freeze, else that of Machine Controller
// Manager, which may have written it.
func setFrozen(w World, s *v1alpha1.MachineSetStatus) {
	if !machinefacts.IsFrozen(w.Set) {
		machinefacts.DropMachineSetCondition(s, v1alpha1.MachineSetFrozen)
		return
	}
	frozen := v1alpha1.MachineSetCondition{
		Type: v1alpha1.MachineSetFrozen, Status: corev1.ConditionTrue, Reason: v1alpha1.ReasonFreezeLabel,
		Message: "The MachineSet has the label " + v1alpha1.LabelFreeze + "=True, and makes no machines",
	}
	is := machinefacts.MachineSetCondition(s, v1alpha1.MachineSetFrozen)
	switch why, noted := w.Set.Annotations[v1alpha1.AnnotationOvershooting]; {
	case noted:
		frozen.Reason = v1alpha1.ReasonOverShootingReplicaCount
		frozen.Message = why + "; it creates no machines until there are fewer, or until it has the annotation " + v1alpha1.AnnotationUnfreeze
	case is != nil && is.Status == corev1.ConditionTrue:
		return
	}
	machinefacts.PutMachineSetCondition(s, frozen, w.Now)
}
