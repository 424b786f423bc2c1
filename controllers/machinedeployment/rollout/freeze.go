package rollout

import (
	"fmt"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/machinefacts"
)

// frozen returns the set that is frozen, the new one before the others; nil when none is.
func (s *sets) frozen() *v1alpha1.MachineSet {
	for _, t := range s.all() {
		if machinefacts.IsFrozen(t.set) {
			return t.set
		}
	}
	return nil
}

// frozenCondition returns the condition Frozen, which names the frozen set.
func (s report) frozenCondition() machinefacts.Condition {
	set := s.frozen()
	if set == nil {
		return machinefacts.Condition{}
	}
	return machinefacts.True(v1alpha1.ReasonMachineDeploymentStateSync,
		fmt.Sprintf("MachineSet %s is frozen and creates no machines; end the freeze with the annotation %s=true when its cause is gone",
			set.Name, v1alpha1.AnnotationUnfreeze))
}

// unfreeze ends the freeze of a set when the deployment has the annotation for it.
func (s setChanges) unfreeze(desired *v1alpha1.MachineSet) {
	if _, requested := s.d.Annotations[v1alpha1.AnnotationUnfreeze]; requested {
		delete(desired.Labels, v1alpha1.LabelFreeze)
		delete(desired.Annotations, v1alpha1.AnnotationOvershooting)
	}
}

// noteFreeze sets the deployment's own label while one of its sets is frozen. A request to unfreeze
// them has been executed by now.
func (s report) noteFreeze(d *v1alpha1.MachineDeployment) {
	delete(d.Annotations, v1alpha1.AnnotationUnfreeze)
	if s.frozen() == nil {
		delete(d.Labels, v1alpha1.LabelFreeze)
		return
	}
	d.Labels[v1alpha1.LabelFreeze] = "True" // it has labels: that of its slot
}
