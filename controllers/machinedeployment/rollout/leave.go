package rollout

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
)

// ignoredFor is how long a deployment has existed, at the least, that somebody has ignored: a fleet that works meets a new
// one within seconds.
const ignoredFor = 5 * time.Minute

// leaveAlone leaves a deployment as it is that Machine Controller Manager has ignored because it names no strategy, and that
// has no sets. It has stood there without effect, and whoever lets the fleet take over does not expect machines of it. The
// next change of its spec is one that was made for the fleet.
func leaveAlone(w World) (v Verdict, left bool) {
	d := w.Deployment
	if d.Spec.Strategy.Type != "" {
		return Verdict{}, false
	}
	valid := condition(d.Status, v1alpha1.MachineDeploymentValid)
	if valid != nil && valid.Status == corev1.ConditionFalse && valid.Reason == v1alpha1.ReasonNoStrategy {
		return Verdict{Do: Rest}, d.Status.ObservedGeneration == d.Generation
	}
	isNew := d.Status.ObservedGeneration == 0 && !slices.Contains(d.Finalizers, v1alpha1.FinalizerName)
	switch {
	case !isNew || len(w.Owned) > 0 || w.Now.Sub(d.CreationTimestamp.Time) < ignoredFor:
		return Verdict{}, false
	case w.Live == nil:
		return Verdict{Do: ListLive}, true
	case len(w.Live) > 0:
		return Verdict{}, false
	}
	return untouched(w, v1alpha1.ReasonNoStrategy, "The MachineDeployment names no strategy, has no machines, and is older than the fleet's "+
		"first look at it. It is left as it is until its spec changes: give it the strategy RollingUpdate, or delete it"), true
}
