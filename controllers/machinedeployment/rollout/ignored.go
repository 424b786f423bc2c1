package rollout

import (
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1/validation"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/machinefacts"
)

// ignoredFor is how long a deployment has existed, at the least, before it counts as ignored: a
// fleet that works processes a new one within seconds.
const ignoredFor = 5 * time.Minute

// decideWithoutStrategy does not reconcile a deployment that Machine Controller Manager has ignored
// because it names no strategy, and that has no sets. It has had no effect so far, and users who
// take over to the fleet do not expect machines of it. The next change of its spec is meant for the
// fleet. decided is false where the other rules decide.
func decideWithoutStrategy(w World) (v Verdict, decided bool) {
	d := w.Deployment
	if d.Spec.Strategy.Type != "" || d.Annotations[v1alpha1.AnnotationStrategy] != "" {
		return Verdict{}, false
	}
	// The fleet wrote it: Machine Controller Manager has no such condition.
	shown := machinefacts.MachineDeploymentCondition(&d.Status, v1alpha1.MachineDeploymentValid)
	switch {
	case shown != nil && shown.Reason == v1alpha1.ReasonNoStrategy && d.Status.ObservedGeneration == d.Generation:
		return Verdict{Do: Rest}, true
	case shown != nil, len(w.Owned) > 0, isFresh(d, w.Now):
		return recordStrategy(w)
	case w.LiveSets == nil:
		return Verdict{Do: ListSets}, true
	case len(w.LiveSets) > 0:
		return recordStrategy(w)
	}
	return untouched(d, w.Now, v1alpha1.ReasonNoStrategy, "The MachineDeployment names no strategy, has no MachineSets, and existed before the "+
		"fleet. It is not reconciled until its spec changes: "+
		`set a strategy, as in {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}, or delete it`), true
}

// isFresh reports whether the deployment was created a short while ago, and that no controller has
// written it.
func isFresh(d *v1alpha1.MachineDeployment, now time.Time) bool {
	return d.Status.ObservedGeneration == 0 && !slices.Contains(d.Finalizers, v1alpha1.FinalizerName) && now.Sub(d.CreationTimestamp.Time) < ignoredFor
}

// recordStrategy records on a deployment without a strategy that the fleet reconciles it:
// everything else that is written before it has a set may be Machine Controller Manager's. Whether
// it is invalid is reported elsewhere.
func recordStrategy(w World) (v Verdict, decided bool) {
	if len(validation.ValidateMachineDeployment(w.Deployment)) > 0 {
		return Verdict{}, false
	}
	v, _ = prepare(w) // in the same write
	metav1.SetMetaDataAnnotation(&v.Deployment.ObjectMeta, v1alpha1.AnnotationStrategy, string(v1alpha1.RollingUpdateMachineDeploymentStrategyType))
	return v, true
}
