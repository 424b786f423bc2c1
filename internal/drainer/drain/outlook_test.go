package drain

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// TestOutlooks has a pod for each outlook, in the order of their removal.
func TestOutlooks(t *testing.T) {
	pod := func(name, app, owner string) *corev1.Pod {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "n", Labels: map[string]string{"app": app}}}
		p.OwnerReferences = []metav1.OwnerReference{{Kind: owner, Name: app, Controller: new(true)}}
		p.Status.Phase = corev1.PodRunning
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
		return p
	}
	budget := func(name, app string, allowed int32) *policyv1.PodDisruptionBudget {
		b := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "n"}}
		b.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}
		b.Spec.MinAvailable = new(intstr.FromInt32(1))
		b.Status = policyv1.PodDisruptionBudgetStatus{CurrentHealthy: 2, DesiredHealthy: 1, ExpectedPods: 2, DisruptionsAllowed: allowed}
		return b
	}
	ending := pod("f-ending", "x", "ReplicaSet")
	end := time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)
	ending.DeletionTimestamp = &metav1.Time{Time: end}
	pods := []*corev1.Pod{
		pod("a-daemon", "x", "DaemonSet"), pod("b-free", "x", "ReplicaSet"), pod("c-allowed", "allowed", "ReplicaSet"),
		pod("d-blocked", "blocked", "ReplicaSet"), pod("e-several", "several", "ReplicaSet"), ending,
	}
	budgets := []*policyv1.PodDisruptionBudget{
		budget("allowed", "allowed", 1), budget("blocked", "blocked", 0), budget("one", "several", 1), budget("two", "several", 1),
	}
	got := Outlooks(pods, budgets, Settings{})
	want := []struct {
		name    string
		check   func(o Outlook) bool
		blocked bool
	}{
		{"b-free", func(o Outlook) bool { return len(o.Budgets) == 0 }, false},
		{"c-allowed", func(o Outlook) bool { return len(o.Budgets) == 1 }, false},
		{"d-blocked", func(o Outlook) bool { return o.Blocked != nil && o.Blocked.IsMisconfigured && o.Blocked.Text() != "" }, true},
		{"e-several", func(o Outlook) bool { return o.Blocked != nil && o.Blocked.IsUnevictable }, true},
		{"f-ending", func(o Outlook) bool { return o.Ends.Equal(end) }, false},
		{"a-daemon", func(o Outlook) bool { return o.Stays }, false},
	}
	if len(got) != len(want) {
		t.Fatalf("%d outlooks, want %d", len(got), len(want))
	}
	for i, w := range want {
		if o := got[i]; o.Pod.Name != w.name || (o.Blocked != nil) != w.blocked || !w.check(o) {
			t.Errorf("%s: got %+v", w.name, o)
		}
	}
	if o := Outlooks(pods[4:5], budgets, Settings{SeveralBudgets: true})[0]; o.Blocked != nil {
		t.Errorf("several budgets, all of which allow it: %+v", o.Blocked)
	}
}
