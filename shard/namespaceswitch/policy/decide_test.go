package policy

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
)

func TestIsOn(t *testing.T) {
	of := func(replicas *int32) *appsv1.Deployment {
		return &appsv1.Deployment{Spec: appsv1.DeploymentSpec{Replicas: replicas}}
	}
	ending := of(new(int32(1)))
	ending.DeletionTimestamp = &metav1.Time{}
	for name, tc := range map[string]struct {
		deployment *appsv1.Deployment
		want       bool
	}{
		"no Deployment":           {nil, false},
		"no replicas":             {of(new(int32(0))), false},
		"the default of replicas": {of(nil), true},
		"a replica":               {of(new(int32(1))), true},
		"more for availability":   {of(new(int32(2))), true},
		"it is being deleted":     {ending, false},
	} {
		if got := IsOn(tc.deployment); got != tc.want {
			t.Errorf("%s: on %t, want %t", name, got, tc.want)
		}
	}
}

func TestDecide(t *testing.T) {
	at := func(minute int) metav1.Time { return metav1.NewTime(time.Date(2026, 1, 1, 0, minute, 0, 0, time.UTC)) }
	condition := func(of corev1.PodConditionType, is corev1.ConditionStatus, since int, reason, message string) corev1.PodCondition {
		return corev1.PodCondition{Type: of, Status: is, LastTransitionTime: at(since), Reason: reason, Message: message}
	}
	served := func(since int) corev1.PodCondition {
		return condition(corev1.PodReady, corev1.ConditionTrue, since, reasonServed, messageServed)
	}
	unserved := func(since int, message string) corev1.PodCondition {
		return condition(corev1.PodReady, corev1.ConditionFalse, since, "Why", message)
	}
	switched := condition(v1alpha1.PodSwitchedOn, corev1.ConditionTrue, 5, "", "")
	switched.LastProbeTime = at(2)
	pod := func(phase corev1.PodPhase, conditions ...corev1.PodCondition) *corev1.Pod {
		p := &corev1.Pod{Status: corev1.PodStatus{Phase: phase, Conditions: conditions}}
		p.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: v1alpha1.SchedulingGateNever}}
		return p
	}
	change := func(p *corev1.Pod, f func(p *corev1.Pod)) *corev1.Pod {
		f(p)
		return p
	}
	running, pending := corev1.PodRunning, corev1.PodPending
	why := Service{Reason: "Why", Message: "m"}
	for name, tc := range map[string]struct {
		pod     *corev1.Pod
		service Service
		off     bool
		unknown bool // when it was switched on
		want    []corev1.PodCondition
		none    bool // nothing is to be written
	}{
		"a new pod":                           {pod: pod(pending), want: []corev1.PodCondition{served(9), switched}},
		"a new pod, and it is not known when": {pod: pod(pending), unknown: true, want: []corev1.PodCondition{served(9)}},
		"a new pod is not served":             {pod: pod(pending), service: why, want: []corev1.PodCondition{unserved(9, "m"), switched}},
		"a new pod, and nothing is wrong": {
			pod: pod(pending), service: Service{Pending: true}, want: []corev1.PodCondition{served(9), switched},
		},
		"nothing has changed": {pod: pod(running, served(6), switched), none: true},
		"another replica has seen another time": {
			pod: pod(running, served(6), condition(v1alpha1.PodSwitchedOn, corev1.ConditionTrue, 4, "", "")), none: true,
		},
		"the phase was changed": {pod: pod(pending, served(6), switched)},
		"it is not served any more": {
			pod: pod(running, served(6), switched), service: why, want: []corev1.PodCondition{unserved(9, "m")},
		},
		"it is not served for another reason": {
			pod: pod(running, unserved(6, "n"), switched), service: why, want: []corev1.PodCondition{unserved(6, "m")},
		},
		"it is still not served":              {pod: pod(running, unserved(6, "m"), switched), service: why, none: true},
		"it is served again":                  {pod: pod(running, unserved(6, "m"), switched), want: []corev1.PodCondition{served(9)}},
		"it will be known soon whether it is": {pod: pod(running, unserved(6, "m"), switched), service: Service{Pending: true}, none: true},
		"it is off: the pod is about to go":   {pod: pod(pending), off: true, none: true},
		"a pod on a Node":                     {pod: change(pod(pending), func(p *corev1.Pod) { p.Spec.NodeName = "n" }), none: true},
		"a pod that can be bound to a Node":   {pod: change(pod(pending), func(p *corev1.Pod) { p.Spec.SchedulingGates = nil }), none: true},
		"a pod that is being deleted": {
			pod: change(pod(pending), func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{} }), none: true,
		},
		"a pod that was evicted": {pod: pod(corev1.PodFailed), none: true},
	} {
		w := World{Now: at(9).Time, On: !tc.off, Last: Time{Off: at(2).Time, On: at(5).Time}, Service: tc.service, Pods: []*corev1.Pod{tc.pod}}
		if tc.unknown {
			w.Last = Time{}
		}
		var want []Report
		if !tc.none {
			want = []Report{{Pod: tc.pod, Conditions: tc.want}}
		}
		if diff := cmp.Diff(want, Decide(w)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	if got := Recorded([]*corev1.Pod{pod(running), pod(running, switched)}); got != (Time{Off: at(2).Time, On: at(5).Time}) {
		t.Errorf("recorded: %v", got)
	}
}
