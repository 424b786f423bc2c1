package drain

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// guards returns the budgets that apply to the eviction of a pod, by name. As at the API server,
// none applies to a pod that does not run.
func guards(f Facts, pod *corev1.Pod) []*policyv1.PodDisruptionBudget {
	if pod.Status.Phase == corev1.PodPending || hasEnded(pod) || pod.DeletionTimestamp != nil {
		return nil
	}
	var found []*policyv1.PodDisruptionBudget
	for _, b := range f.Budgets {
		selector, err := metav1.LabelSelectorAsSelector(b.Spec.Selector)
		if err == nil && b.Namespace == pod.Namespace && selector.Matches(labels.Set(pod.Labels)) {
			found = append(found, b)
		}
	}
	slices.SortFunc(found, func(a, b *policyv1.PodDisruptionBudget) int { return cmp.Compare(a.Name, b.Name) })
	return found
}

// isFree reports whether a pod can be evicted without a disruption of the budget: it is not ready,
// and the budget allows that.
func isFree(pod *corev1.Pod, b *policyv1.PodDisruptionBudget) bool {
	if isReady(pod) {
		return false
	}
	always := b.Spec.UnhealthyPodEvictionPolicy != nil && *b.Spec.UnhealthyPodEvictionPolicy == policyv1.AlwaysAllow
	return always || b.Status.CurrentHealthy >= b.Status.DesiredHealthy && b.Status.DesiredHealthy > 0
}

// isStale reports whether the budget is about to be counted: its spec has changed, or a recount was
// requested.
func isStale(b *policyv1.PodDisruptionBudget) bool { return b.Status.ObservedGeneration < b.Generation }

// allows reports whether a budget has a disruption left.
func allows(b *policyv1.PodDisruptionBudget) bool {
	return !isStale(b) && b.Status.DisruptionsAllowed > 0
}

// isTaken reports whether a disruption of the budget is recorded for this pod already: its removal
// was interrupted before all of its budgets had one. Only with several budgets it needs no second
// one: the eviction API takes one each time.
func isTaken(pod *corev1.Pod, b *policyv1.PodDisruptionBudget) bool {
	_, is := b.Status.DisruptedPods[pod.Name]
	return is && !isStale(b)
}

// blocking returns those of a pod's budgets that do not allow its eviction now.
func blocking(pod *corev1.Pod, guards []*policyv1.PodDisruptionBudget) []*policyv1.PodDisruptionBudget {
	var blockers []*policyv1.PodDisruptionBudget
	for _, b := range guards {
		if !isFree(pod, b) && !allows(b) && (len(guards) < 2 || !isTaken(pod, b)) {
			blockers = append(blockers, b)
		}
	}
	return blockers
}

// isMisconfigured reports whether a budget blocks its pods although all of them are healthy, so
// that waiting does not help.
func isMisconfigured(b *policyv1.PodDisruptionBudget) bool {
	s := b.Status
	isRequested := s.ObservedGeneration == 0 // the rest of the status is from the previous count
	return (isRequested || !isStale(b)) && s.ExpectedPods > 0 && s.CurrentHealthy >= s.ExpectedPods &&
		len(s.DisruptedPods) == 0 && s.DisruptionsAllowed == 0
}

// isUncounted reports whether a budget never allows the eviction of a pod without a controller:
// unless minAvailable is a number, the disruption controller computes how many pods it expects from
// their controllers, and where it expects none it allows none.
func isUncounted(pod *corev1.Pod, b *policyv1.PodDisruptionBudget) bool {
	isNumber := b.Spec.MinAvailable != nil && b.Spec.MinAvailable.Type == intstr.Int
	return metav1.GetControllerOfNoCopy(pod) == nil && !isNumber && !isStale(b) && b.Status.ExpectedPods == 0 &&
		b.Status.DisruptionsAllowed == 0
}
