package nodesync

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
)

// A patch of conditions adds, changes and removes those that differ, and leaves those of other
// writers.
func TestDiffOfConditions(t *testing.T) {
	node := func(conditions ...corev1.NodeCondition) *corev1.Node {
		return &corev1.Node{Status: corev1.NodeStatus{Conditions: conditions}}
	}
	condition := func(kind, reason string) corev1.NodeCondition {
		return corev1.NodeCondition{Type: corev1.NodeConditionType(kind), Status: corev1.ConditionTrue, Reason: reason}
	}
	before := node(condition("Changed", "a"), condition("Removed", "a"), condition("Same", "a"))
	after := node(condition("Changed", "b"), condition("Same", "a"), condition("Added", "a"))
	main, status := Diff(before, after)
	if main != nil || status == nil || !status.Status {
		t.Fatalf("patches %+v and %+v, want only one of the status", main, status)
	}
	patch, err1 := json.Marshal(status.Body)
	stored, err2 := json.Marshal(node(append(before.Status.Conditions, condition("Of others", "a"))...))
	if err1 != nil || err2 != nil {
		t.Fatal(err1, err2)
	}
	patched, err := strategicpatch.StrategicMergePatch(stored, patch, &corev1.Node{})
	if err != nil {
		t.Fatal(err)
	}
	var is corev1.Node
	if err := json.Unmarshal(patched, &is); err != nil {
		t.Fatal(err)
	}
	got := map[corev1.NodeConditionType]string{}
	for _, c := range is.Status.Conditions {
		got[c.Type] = c.Reason
	}
	if diff := cmp.Diff(map[corev1.NodeConditionType]string{"Changed": "b", "Same": "a", "Added": "a", "Of others": "a"}, got); diff != "" {
		t.Errorf("conditions (-want +got):\n%s", diff)
	}
	if main, status := Diff(before, before); main != nil || status != nil {
		t.Errorf("patches %+v and %+v of a Node that does not differ", main, status)
	}
}
