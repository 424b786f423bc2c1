package machinefacts

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/bounded"
)

func TestSetConditionOfSet(t *testing.T) {
	s, before, later := &v1alpha1.MachineSetStatus{}, now.Add(-time.Hour), now
	put := func(status corev1.ConditionStatus, reason string, at time.Time) v1alpha1.MachineSetCondition {
		SetConditionOfSet(s, v1alpha1.MachineSetFrozen, Condition{status, reason, strings.Repeat("x", 1<<20)}, at)
		return *MachineSetCondition(s, v1alpha1.MachineSetFrozen)
	}
	if c := put(corev1.ConditionTrue, "A", before); !c.LastTransitionTime.Time.Equal(before) || len(c.Message) > bounded.Message {
		t.Errorf("a new one: since %s, message of %d bytes", c.LastTransitionTime, len(c.Message))
	}
	if c := put(corev1.ConditionTrue, "B", later); !c.LastTransitionTime.Time.Equal(before) || c.Reason != "B" {
		t.Errorf("the same status: since %s, reason %s", c.LastTransitionTime, c.Reason)
	}
	if c := put(corev1.ConditionFalse, "B", later); !c.LastTransitionTime.Time.Equal(later) || len(s.Conditions) != 1 {
		t.Errorf("another status: since %s, %d conditions", c.LastTransitionTime, len(s.Conditions))
	}
	if SetConditionOfSet(s, v1alpha1.MachineSetValid, Condition{}, later); len(s.Conditions) != 1 {
		t.Error("another condition was dropped")
	}
	if SetConditionOfSet(s, v1alpha1.MachineSetFrozen, Condition{}, later); s.Conditions != nil ||
		MachineSetCondition(s, v1alpha1.MachineSetFrozen) != nil {
		t.Errorf("after it was dropped: %v, want nil", s.Conditions)
	}
}

// TestStandardConditions: they are those of MCM's field, without what the API server would reject.
func TestStandardConditions(t *testing.T) {
	s := &v1alpha1.MachineSetStatus{ObservedGeneration: 7, Conditions: []v1alpha1.MachineSetCondition{
		{Type: "Foreign", Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(now)}, // without a reason
		{Type: v1alpha1.MachineSetValid, Status: corev1.ConditionFalse, Reason: "InvalidSpec", LastTransitionTime: metav1.NewTime(now)},
		{Type: v1alpha1.MachineSetValid, Status: corev1.ConditionFalse, Reason: "Twice", LastTransitionTime: metav1.NewTime(now)},
	}}
	SetConditionOfSet(s, v1alpha1.MachineSetFrozen, Condition{corev1.ConditionTrue, "FreezeLabel", "m"}, now)
	want := []metav1.Condition{
		{Type: "Valid", Status: metav1.ConditionFalse, ObservedGeneration: 7, LastTransitionTime: metav1.NewTime(now), Reason: "InvalidSpec"},
		{
			Type: "Frozen", Status: metav1.ConditionTrue, ObservedGeneration: 7, LastTransitionTime: metav1.NewTime(now), Reason: "FreezeLabel",
			Message: "m",
		},
	}
	if diff := cmp.Diff(want, s.StandardConditions); diff != "" {
		t.Errorf("after one was put (-want +got):\n%s", diff)
	}
	SetConditionOfSet(s, v1alpha1.MachineSetValid, Condition{}, now)
	if diff := cmp.Diff(want[1:], s.StandardConditions); diff != "" {
		t.Errorf("after one was dropped (-want +got):\n%s", diff)
	}
	if SetConditionOfSet(s, v1alpha1.MachineSetFrozen, Condition{}, now); s.StandardConditions != nil {
		t.Errorf("after all were dropped: %v, want nil", s.StandardConditions)
	}
}

func TestSetConditionOfDeployment(t *testing.T) {
	s, before, later := &v1alpha1.MachineDeploymentStatus{}, now.Add(-time.Hour), now
	for _, tc := range []struct {
		name                string
		status              corev1.ConditionStatus
		reason, message     string
		at                  time.Time
		updated, transition time.Time
	}{
		{"new", corev1.ConditionTrue, "A", "a", before, before, before},
		{"another message", corev1.ConditionTrue, "A", "b", later, before, before},
		{"another reason", corev1.ConditionTrue, "B", "b", later, later, before},
		{"another status", corev1.ConditionFalse, "B", "b", later, later, later},
	} {
		SetConditionOfDeployment(s, v1alpha1.MachineDeploymentFrozen, Condition{tc.status, tc.reason, tc.message}, tc.at)
		c := MachineDeploymentCondition(s, v1alpha1.MachineDeploymentFrozen)
		if c.Message != tc.message || !c.LastUpdateTime.Time.Equal(tc.updated) || !c.LastTransitionTime.Time.Equal(tc.transition) ||
			len(s.Conditions) != 1 {
			t.Errorf("%s: %+v", tc.name, s.Conditions)
		}
	}
	if SetConditionOfDeployment(s, v1alpha1.MachineDeploymentFrozen, Condition{}, later); s.Conditions != nil {
		t.Errorf("after it was dropped: %v, want nil", s.Conditions)
	}
}

func TestValidity(t *testing.T) {
	class := Condition{corev1.ConditionFalse, v1alpha1.ReasonInvalidClass, "c"}
	for _, tc := range []struct {
		class   Condition
		remarks []string
		want    Condition
	}{
		{},
		{class: class, remarks: []string{"a"}, want: class},
		{remarks: []string{"a", "b"}, want: Condition{corev1.ConditionTrue, v1alpha1.ReasonRemarks, "a; b"}},
	} {
		if got := Validity(tc.class, tc.remarks); got != tc.want {
			t.Errorf("%v %v: %v, want %v", tc.class, tc.remarks, got, tc.want)
		}
	}
}

func TestNodeConditions(t *testing.T) {
	n := &corev1.Node{Status: corev1.NodeStatus{
		Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady}, {Type: v1alpha1.NodeTerminating, Status: corev1.ConditionFalse}},
	}}
	if IsTerminating(n) || IsTerminating(&corev1.Node{}) {
		t.Error("a Node counts as terminating whose condition is not True")
	}
	if NodeCondition(n, v1alpha1.NodeTerminating).Status = corev1.ConditionTrue; !IsTerminating(n) {
		t.Error("a Node does not count as terminating whose condition is True")
	}
	n.Labels = map[string]string{v1alpha1.LabelCandidateForUpdate: "true", v1alpha1.LabelSelectedForUpdate: "no"}
	if !IsInPlaceCandidate(n) || IsInPlaceSelected(n) {
		t.Error("want a candidate that is not selected")
	}
}
