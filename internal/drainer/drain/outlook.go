package drain

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
)

// Outlook describes one pod to a drain: whether it can be removed now, and by which budgets not.
type Outlook struct {
	Pod *corev1.Pod
	// Stays reports whether the pod ends with its Node, and is not awaited.
	Stays bool
	// Ends is when the grace period of a pod that is ending is over; zero if it is not ending.
	Ends time.Time
	// Budgets select the pod.
	Budgets []*policyv1.PodDisruptionBudget
	// Blocked has what keeps the pod from being evicted; nil if it can be evicted.
	Blocked *Blocked
}

// Outlooks returns the outlook of each pod of a Node, for people: first those that have to leave,
// in the order in which a drain removes them. budgets are those of the pods' namespaces, and
// settings those of the fleet. It knows of no attempt: a pod that it reports as free may still be
// refused.
func Outlooks(pods []*corev1.Pod, budgets []*policyv1.PodDisruptionBudget, settings Settings) []Outlook {
	f := Facts{Budgets: budgets}
	left := leaving(pods)
	all := make([]Outlook, 0, len(pods))
	for _, pod := range left {
		o := Outlook{Pod: pod, Budgets: guards(f, pod)}
		var p Progress
		switch by := blocking(pod, o.Budgets); {
		case pod.DeletionTimestamp != nil:
			o.Ends = pod.DeletionTimestamp.Time
		case len(o.Budgets) > 1 && !settings.SeveralBudgets:
			p = addUnevictable(p, pod, o.Budgets)
		case len(by) > 0:
			p = addBlocked(p, pod, by, "")
		}
		if len(p.Blocked) > 0 {
			o.Blocked = &p.Blocked[0]
		}
		all = append(all, o)
	}
	for _, pod := range pods {
		if stays(pod) {
			all = append(all, Outlook{Pod: pod, Stays: true})
		}
	}
	return all
}

// Text returns what blocks the pod, and what to do about it where waiting does not help.
func (b Blocked) Text() string { return b.cause() }
