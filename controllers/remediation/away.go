package remediation

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machinefacts"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/objectcache"
	"github.com/machine-controller-fleet/machine-controller-fleet/telemetry"
)

// awayMessage is the message of the condition. It has no time, so that replicas that take over do not write it again.
const awayMessage = "The API server of the target cluster, or that of the control cluster, does not answer. Until it does, no machine is created, fails, is replaced or deleted; " +
	"machines with the label " + v1alpha1.LabelForceDeletion + "=true are deleted without a drain"

func isDeploymentAway(d *v1alpha1.MachineDeployment) bool {
	c := machinefacts.MachineDeploymentCondition(&d.Status, v1alpha1.MachineDeploymentAPIServerAway)
	return c != nil && c.Status == corev1.ConditionTrue
}

func setDeploymentAway(d *v1alpha1.MachineDeployment, now time.Time, away bool) {
	if !away {
		machinefacts.DropMachineDeploymentCondition(&d.Status, v1alpha1.MachineDeploymentAPIServerAway)
		return
	}
	machinefacts.PutMachineDeploymentCondition(&d.Status, v1alpha1.MachineDeploymentCondition{
		Type: v1alpha1.MachineDeploymentAPIServerAway, Status: corev1.ConditionTrue, Reason: v1alpha1.ReasonNoAnswer, Message: awayMessage,
	}, now)
}

func isSetAway(s *v1alpha1.MachineSet) bool {
	c := machinefacts.MachineSetCondition(&s.Status, v1alpha1.MachineSetAPIServerAway)
	return c != nil && c.Status == corev1.ConditionTrue
}

func setSetAway(s *v1alpha1.MachineSet, now time.Time, away bool) {
	if !away {
		machinefacts.DropMachineSetCondition(&s.Status, v1alpha1.MachineSetAPIServerAway)
		return
	}
	machinefacts.PutMachineSetCondition(&s.Status, v1alpha1.MachineSetCondition{
		Type: v1alpha1.MachineSetAPIServerAway, Status: corev1.ConditionTrue, Reason: v1alpha1.ReasonNoAnswer, Message: awayMessage,
	}, now)
}

// announceAway emits an Event when an API server is away, and when it is back.
func (r *roots[T]) announceAway(ctx context.Context, root T, was, is bool) {
	about, ok := any(root).(runtime.Object)
	switch {
	case !ok || was == is:
	case is:
		telemetry.Emit(ctx, r.events, about, v1alpha1.EventAPIServerAway, awayMessage)
	default:
		telemetry.Emit(ctx, r.events, about, v1alpha1.EventAPIServerBack,
			"The API servers of target and control cluster answer again; the health timeouts of unhealthy machines begin anew")
	}
}

// enqueueIf enqueues the roots of some namespaces.
func (r *roots[T]) enqueueIf(isOf func(namespace string) bool) {
	for _, root := range r.all.All() {
		if r.isRoot(root) && isOf(root.GetNamespace()) {
			r.runner.Enqueue(objectcache.Key(root))
		}
	}
}
