package scale

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machinefacts"
)

// unfreeze ends a freeze when it is requested.
func unfreeze(w World) (v Verdict, requested bool) {
	if _, requested := w.Set.Annotations[v1alpha1.AnnotationUnfreeze]; !requested {
		return Verdict{}, false
	}
	set := w.Set.DeepCopy()
	delete(set.Labels, v1alpha1.LabelFreeze)
	delete(set.Annotations, v1alpha1.AnnotationUnfreeze)
	return Verdict{Do: Save, Set: set}, true
}

// setFrozen sets the condition while the set has the label. The controller that froze it may have written the reason.
func setFrozen(w World, s *v1alpha1.MachineSetStatus) {
	if !machinefacts.IsFrozen(w.Set) {
		machinefacts.DropMachineSetCondition(s, v1alpha1.MachineSetFrozen)
		return
	}
	if is := machinefacts.MachineSetCondition(s, v1alpha1.MachineSetFrozen); is != nil && is.Status == corev1.ConditionTrue {
		return
	}
	machinefacts.PutMachineSetCondition(s, v1alpha1.MachineSetCondition{
		Type: v1alpha1.MachineSetFrozen, Status: corev1.ConditionTrue, Reason: v1alpha1.ReasonFreezeLabel,
		Message: "The MachineSet has the label " + v1alpha1.LabelFreeze + "=True, and makes no machines",
	}, w.Now)
}
