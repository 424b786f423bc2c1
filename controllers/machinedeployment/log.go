package machinedeployment

import (
	"context"

	"k8s.io/klog/v2"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/bounded"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/machinefacts"
)

// logProgress logs the step of a rollout that the difference between two versions of a deployment
// shows, if any.
func logProgress(ctx context.Context, before, after *v1alpha1.MachineDeployment) {
	log := klog.FromContext(ctx)
	was, is := machinefacts.ConditionOfDeployment(&before.Status,
		v1alpha1.MachineDeploymentProgressing), machinefacts.ConditionOfDeployment(&after.Status, v1alpha1.MachineDeploymentProgressing)
	switch {
	case is == was:
	case begins(was, is):
		log.Info("Rollout started", "reason", is.Reason, "message", is.Message, "replicas", after.Spec.Replicas)
	case is.Reason == was.Reason:
	case is.Reason == v1alpha1.ReasonNewMachineSetAvailable && was.Reason != "":
		log.Info("Rollout completed", "reason", is.Reason, "message", is.Message, "replicas", after.Spec.Replicas)
	case is.Reason == v1alpha1.ReasonDeploymentPaused:
		log.Info("Rollout paused", "reason", is.Reason)
	case is.Reason == v1alpha1.ReasonDeploymentResumed:
		log.Info("Rollout resumed", "reason", is.Reason)
	}
	was, is = machinefacts.ConditionOfDeployment(&before.Status,
		v1alpha1.MachineDeploymentRolloutStalled), machinefacts.ConditionOfDeployment(&after.Status, v1alpha1.MachineDeploymentRolloutStalled)
	if is.Reason != "" && is.Reason != was.Reason {
		log.Error(nil, "Rollout stalled", "reason", is.Reason, "message", bounded.Text(is.Message, bounded.Message))
	}
}

// begins reports whether a rollout has begun: to a new template, also while one to another template
// was under way.
func begins(was, is machinefacts.Condition) bool {
	switch is.Reason {
	case v1alpha1.ReasonNewMachineSetCreated, v1alpha1.ReasonFoundNewMachineSet:
		return true
	case v1alpha1.ReasonMachineSetUpdated:
		return was.Reason == "" || was.Reason == v1alpha1.ReasonNewMachineSetAvailable
	}
	return false
}
