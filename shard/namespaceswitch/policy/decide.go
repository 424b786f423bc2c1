package policy

import (
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
)

// Deployment is the name of the switch of each namespace, and Selector selects its pods. Both are
// those that Gardener has for Machine Controller Manager.
const (
	Deployment = "machine-controller-manager"
	Selector   = "role=" + Deployment
)

// IsOn reports whether a Deployment, nil if there is none, switches its namespace on. One without
// replicas has 1, as the API server sets.
func IsOn(d *appsv1.Deployment) bool {
	return d != nil && d.DeletionTimestamp == nil && (d.Spec.Replicas == nil || *d.Spec.Replicas > 0)
}

// IsStandIn reports whether a pod is a stand-in whose status the fleet reports: it is in no Node
// and will be in none, it is not being deleted, and its status is not final.
func IsStandIn(pod *corev1.Pod) bool {
	return pod.Spec.NodeName == "" && pod.DeletionTimestamp == nil &&
		slices.Contains(pod.Spec.SchedulingGates, corev1.PodSchedulingGate{Name: v1alpha1.SchedulingGateNever}) &&
		pod.Status.Phase != corev1.PodSucceeded && pod.Status.Phase != corev1.PodFailed
}

// Time is when a namespace was last switched on. Off is when it was switched off before; both are
// zero if it is not known.
type Time struct{ Off, On time.Time }

// Recorded returns the time that the pods of a switch record.
func Recorded(pods []*corev1.Pod) Time {
	for _, pod := range pods {
		if c := condition(pod, v1alpha1.PodSwitchedOn); c != nil {
			return Time{Off: c.LastProbeTime.Time, On: c.LastTransitionTime.Time}
		}
	}
	return Time{}
}

// Service is how the fleet serves a namespace.
type Service struct {
	// Reason is empty while the namespace is served, and otherwise says in one word why not.
	// Message says it in a sentence.
	Reason, Message string
	// Pending means that it will be known soon. Until then a pod keeps what was reported.
	Pending bool
}

// World is the input of a decision about the switch of a namespace.
type World struct {
	Now time.Time
	// Unselected is true for a namespace that is not the fleet's.
	Unselected bool
	// On reports whether the namespace is switched on, Last when that was.
	On      bool
	Last    Time
	Service Service
	// Pods are those that Selector selects in the namespace.
	Pods []*corev1.Pod
}

// Report contains the status to report on a pod: conditions that take the place of those of their
// types.
type Report struct {
	Pod        *corev1.Pod
	Conditions []corev1.PodCondition
}

// reasonServed and messageServed are those of a pod that is ready.
const (
	reasonServed  = "FleetServes"
	messageServed = "The fleet serves the namespace in the place of this pod"
)

// Decide returns what is to be reported: nothing while the namespace is off, because its pods are
// deleted then. In a namespace that is not the fleet's, another fleet reports; only that none
// serves it is reported, where a pod still shows that one does.
func Decide(w World) (reports []Report) {
	if !w.On {
		return nil
	}
	for _, pod := range w.Pods {
		if !IsStandIn(pod) {
			continue
		}
		r := Report{Pod: pod}
		isNews := false
		if w.Unselected {
			r.Conditions = w.ofOtherFleet(pod)
		} else {
			r.Conditions = w.conditions(pod)
			isNews = pod.Status.Phase != corev1.PodRunning
		}
		if len(r.Conditions) > 0 || isNews {
			reports = append(reports, r)
		}
	}
	return reports
}

// conditions returns those that a pod should have, and has not.
func (w World) conditions(pod *corev1.Pod) (all []corev1.PodCondition) {
	if is := condition(pod, corev1.PodReady); is == nil || !w.Service.Pending {
		if ready := w.ready(is); is == nil || differs(*is, ready) {
			all = append(all, ready)
		}
	}
	if condition(pod, v1alpha1.PodSwitchedOn) == nil && !w.Last.On.IsZero() {
		all = append(all, corev1.PodCondition{
			Type: v1alpha1.PodSwitchedOn, Status: corev1.ConditionTrue,
			LastProbeTime: metav1.NewTime(w.Last.Off), LastTransitionTime: metav1.NewTime(w.Last.On),
		})
	}
	return all
}

// ofOtherFleet returns the condition of a pod which shows that a fleet serves the namespace, while
// none does; nil otherwise.
func (w World) ofOtherFleet(pod *corev1.Pod) []corev1.PodCondition {
	is := condition(pod, corev1.PodReady)
	if is == nil || is.Reason != reasonServed || w.Service.Reason == "" || w.Service.Pending {
		return nil
	}
	return []corev1.PodCondition{w.ready(is)}
}

// ready returns the condition Ready that a pod should have in the place of one, nil for none.
func (w World) ready(before *corev1.PodCondition) corev1.PodCondition {
	is := corev1.PodCondition{Type: corev1.PodReady, Status: corev1.ConditionTrue, Reason: reasonServed, Message: messageServed}
	if w.Service.Reason != "" {
		is.Status, is.Reason, is.Message = corev1.ConditionFalse, w.Service.Reason, w.Service.Message
	}
	is.LastTransitionTime = metav1.NewTime(w.Now)
	if before != nil && before.Status == is.Status {
		is.LastTransitionTime = before.LastTransitionTime
	}
	return is
}

func differs(a, b corev1.PodCondition) bool {
	return a.Status != b.Status || a.Reason != b.Reason || a.Message != b.Message
}

func condition(pod *corev1.Pod, of corev1.PodConditionType) *corev1.PodCondition {
	i := slices.IndexFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == of })
	if i < 0 {
		return nil
	}
	return &pod.Status.Conditions[i]
}
