package simkubelet

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/lab/cloudsim/guest"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/simulated/cloudapi"
)

// update is an update in place of a VM, as the agent on it knows it.
type update struct {
	asked    metav1.Time // when the Node became ready for it: an update is done once
	since    time.Time   // when it began; zero when none has
	reported bool        // its result is on the Node
}

// updateInPlace does what is due for an update of the VM in place, which begins when the Node is
// ready for it. Meanwhile the kubelet restarts, and the Node is not Ready. It returns the current
// health of the VM, whether the update has ended and its result has to be reported, and when to
// call it again.
func (h *Host) updateInPlace(v *vm, health guest.Health, now time.Time) (shown guest.Health, hasEnded bool, again time.Duration) {
	asked := stage(h.seen(v), v1alpha1.NodeReasonReadyForUpdate)
	if asked == nil {
		v.update = update{}
		return health, false, guest.Never
	}
	if !v.update.asked.Equal(&asked.LastTransitionTime) {
		v.update = update{asked: asked.LastTransitionTime}
	}
	how := h.cloud.Settings().InPlaceUpdates
	switch {
	case v.update.reported:
		return health, false, guest.Never
	case h.result(v) == cloudapi.UpdateNever:
		v.update.since = time.Time{}
		return health, false, recheck
	case v.update.since.IsZero():
		v.update.since = now
		h.cloud.Console(v.ID, "updating in place: the kubelet restarts")
	}
	if wait := v.update.since.Add(time.Duration(how.Time)).Sub(now); wait > 0 {
		return max(health, guest.NotReady), false, min(wait, recheck)
	}
	return health, health == guest.Healthy, recheck
}

// result returns the result of updates of the VM's Node.
func (h *Host) result(v *vm) cloudapi.UpdateResult {
	if node := h.seen(v); node != nil && node.Annotations[cloudapi.AnnotationUpdateResult] != "" {
		return cloudapi.UpdateResult(node.Annotations[cloudapi.AnnotationUpdateResult])
	}
	return h.cloud.Settings().InPlaceUpdates.Result
}

// reportUpdate writes the result to the Node.
func (h *Host) reportUpdate(ctx context.Context, v *vm) error {
	metadata := map[string]any{"labels": map[string]string{v1alpha1.LabelUpdateResult: v1alpha1.UpdateResultSuccessful}}
	line := "updated in place"
	if h.result(v) == cloudapi.UpdateFailed {
		line = "the update in place has failed: an injected fault"
		metadata = map[string]any{
			"labels":      map[string]string{v1alpha1.LabelUpdateResult: v1alpha1.UpdateResultFailed},
			"annotations": map[string]string{v1alpha1.AnnotationUpdateFailedReason: "an injected fault"},
		}
	}
	if err := h.patchNode(ctx, v, metadata, nil); err != nil {
		return fmt.Errorf("report the result of the update: %w", err)
	}
	v.update.reported = true
	h.cloud.Console(v.ID, line)
	return nil
}

// startComponents removes the taint of critical components from a Node that was updated, after the
// time that they take to start, as another controller does in a real cluster. It returns when to
// call it again.
func (h *Host) startComponents(ctx context.Context, v *vm, health guest.Health, now time.Time) (time.Duration, error) {
	node := h.seen(v)
	if stage(node, v1alpha1.NodeReasonUpdateSuccessful) == nil || !awaitsComponents(node.Spec.Taints) || health != guest.Healthy {
		v.componentsSince = time.Time{}
		return guest.Never, nil
	}
	takes := time.Duration(h.cloud.Settings().InPlaceUpdates.ComponentsTime)
	if v.componentsSince.IsZero() {
		v.componentsSince = now
	}
	switch wait := v.componentsSince.Add(takes).Sub(now); {
	case takes < 0:
		return recheck, nil
	case wait > 0:
		return min(wait, recheck), nil
	}
	whole, err := h.cfg.Client.CoreV1().Nodes().Get(ctx, v.Name, metav1.GetOptions{})
	if err != nil {
		return 0, fmt.Errorf("read Node %s: %w", v.Name, err)
	}
	taints := slices.DeleteFunc(whole.Spec.Taints, isComponentsTaint)
	spec := map[string]any{"taints": slices.Concat([]corev1.Taint{}, taints)}
	err = h.patchNode(ctx, v, map[string]any{"resourceVersion": whole.ResourceVersion}, spec)
	if err != nil && !apierrors.IsConflict(err) {
		return 0, err
	}
	return recheck, nil
}

// patchNode changes the VM's Node by a merge patch.
func (h *Host) patchNode(ctx context.Context, v *vm, metadata, spec map[string]any) error {
	body := map[string]any{"metadata": metadata}
	if spec != nil {
		body["spec"] = spec
	}
	patch, err := json.Marshal(body)
	if err != nil {
		return fmt.Errorf("encode a patch: %w", err)
	}
	_, err = h.cfg.Client.CoreV1().Nodes().Patch(ctx, v.Name, types.MergePatchType, patch, metav1.PatchOptions{})
	if apierrors.IsNotFound(err) {
		h.lostNode(v)
		return nil
	}
	if err != nil {
		return fmt.Errorf("patch Node %s: %w", v.Name, err)
	}
	return nil
}

// stage returns the condition of a Node with the stage of its update in place, if it is the given
// stage; otherwise, or for a Node that the watch does not show, nil.
func stage(node *corev1.Node, reason string) *corev1.NodeCondition {
	if node == nil {
		return nil
	}
	for i := range node.Status.Conditions {
		if c := &node.Status.Conditions[i]; c.Type == v1alpha1.NodeInPlaceUpdate && c.Status == corev1.ConditionTrue && c.Reason == reason {
			return c
		}
	}
	return nil
}

// concernsAgent reports whether the agent, or the controller of critical components, has something
// to do on the Node.
func concernsAgent(node *corev1.Node) bool {
	return stage(node, v1alpha1.NodeReasonReadyForUpdate) != nil ||
		stage(node, v1alpha1.NodeReasonUpdateSuccessful) != nil && awaitsComponents(node.Spec.Taints)
}

func isComponentsTaint(t corev1.Taint) bool { return t.Key == v1alpha1.TaintCriticalComponentsNotReady }

func awaitsComponents(taints []corev1.Taint) bool {
	return slices.ContainsFunc(taints, isComponentsTaint)
}
