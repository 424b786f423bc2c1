package rollout

import (
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1/validation"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/machinefacts"
)

// decideDelete deletes all sets, and removes the finalizer when a live list shows none. Sets that
// have to stay are released. The garbage collector releases them, too, but not those that it does
// not know yet after its start, or after the definition of MachineSets was installed: those it
// would delete, as dependents of a deployment that is gone.
func decideDelete(w World) Verdict {
	if !slices.Contains(w.Deployment.Finalizers, v1alpha1.FinalizerName) {
		return Verdict{Do: Rest}
	}
	standing := slices.DeleteFunc(slices.Concat(w.Owned, w.Undecodable), func(s *v1alpha1.MachineSet) bool { return s.DeletionTimestamp != nil })
	remaining := slices.DeleteFunc(slices.Clone(standing), func(s *v1alpha1.MachineSet) bool { return w.Done.Deleted[s.UID] || w.Done.Moved[s.UID] })
	d := w.Deployment.DeepCopy()
	switch orphans := slices.Contains(d.Finalizers, metav1.FinalizerOrphanDependents); {
	case orphans && len(remaining) > 0:
		return Verdict{Do: Release, Sets: remaining}
	case orphans && len(standing) > 0:
		return awaitCache()
	case orphans:
		return removeFinalizer(w.Deployment)
	case len(remaining) > 0:
		return Verdict{Do: Delete, Sets: remaining}
	case len(w.Owned) > 0:
		d.Status = status(countSets(w))
		return Verdict{Do: Rest, Deployment: d}
	case w.LiveSets == nil:
		return Verdict{Do: ListSets}
	case len(w.LiveSets) > 0:
		return awaitCache()
	}
	return removeFinalizer(w.Deployment)
}

// removeFinalizer removes our finalizer.
func removeFinalizer(d *v1alpha1.MachineDeployment) Verdict {
	d = d.DeepCopy()
	d.Finalizers = slices.DeleteFunc(d.Finalizers, func(f string) bool { return f == v1alpha1.FinalizerName })
	return Verdict{Do: Rest, Deployment: d}
}

// invalid reports what is wrong with the deployment, and changes nothing else.
func invalid(d *v1alpha1.MachineDeployment, now time.Time, reason, problem string) Verdict {
	return untouched(d, now, reason, "The MachineDeployment is invalid and not reconciled until it is corrected: "+problem)
}

// untouched reports why the deployment is not reconciled.
func untouched(observed *v1alpha1.MachineDeployment, now time.Time, reason, message string) Verdict {
	d := observed.DeepCopy()
	d.Status.ObservedGeneration = d.Generation
	machinefacts.SetConditionOfDeployment(&d.Status, v1alpha1.MachineDeploymentValid, machinefacts.False(reason, message), now)
	before, is := machinefacts.ConditionOfDeployment(&observed.Status, v1alpha1.MachineDeploymentValid), machinefacts.ConditionOfDeployment(&d.Status, v1alpha1.MachineDeploymentValid)
	v := Verdict{Do: Rest, Deployment: d}
	if before != is {
		v.Events = []Event{{Reason: validation.EventReason(reason), Message: message}}
	}
	return v
}
