package drain

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// leaving returns the pods that have to leave, those of high priority first.
func leaving(pods []*corev1.Pod) []*corev1.Pod {
	var left []*corev1.Pod
	for _, pod := range pods {
		if !stays(pod) {
			left = append(left, pod)
		}
	}
	slices.SortFunc(left, func(a, b *corev1.Pod) int {
		return cmp.Or(cmp.Compare(priority(b), priority(a)), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return left
}

// stays reports whether a pod ends with its Node: a mirror pod cannot be evicted, and one of a
// DaemonSet would be created again.
func stays(pod *corev1.Pod) bool {
	if _, mirror := pod.Annotations[corev1.MirrorPodAnnotationKey]; mirror {
		return true
	}
	owner := metav1.GetControllerOfNoCopy(pod)
	return owner != nil && owner.Kind == "DaemonSet"
}

// isRecreated reports whether a controller creates the pod anew after its deletion.
func isRecreated(pod *corev1.Pod) bool {
	return metav1.GetControllerOfNoCopy(pod) != nil && !hasEnded(pod)
}

// hasEnded reports whether all containers of the pod have terminated finally.
func hasEnded(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

func priority(pod *corev1.Pod) int32 {
	if pod.Spec.Priority == nil {
		return 0
	}
	return *pod.Spec.Priority
}

func isReady(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// wasForced reports whether the pod is being deleted without grace, and only its finalizers delay
// that.
func wasForced(pod *corev1.Pod) bool {
	return pod.DeletionTimestamp != nil && pod.DeletionGracePeriodSeconds != nil && *pod.DeletionGracePeriodSeconds == 0
}

func podKey(pod *corev1.Pod) types.NamespacedName {
	return types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}
}
