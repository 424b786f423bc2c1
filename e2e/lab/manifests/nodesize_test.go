package manifests

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/strategicpatch"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
)

// oversized returns a Node of a kubelet that writes as much of it as it can.
func oversized() *corev1.Node {
	return changed(node(), func(n *corev1.Node) {
		n.Annotations = map[string]string{}
		for i := range 1000 {
			name := fmt.Sprintf("%s.example.org/%d", strings.Repeat("x", 100), i)
			n.Labels[name], n.Annotations[name] = strings.Repeat("x", 60), strings.Repeat("x", 100)
			n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: name, Value: "x", Effect: corev1.TaintEffectNoSchedule})
			n.Finalizers = append(n.Finalizers, fmt.Sprintf("example.org/%d", 2000-i))
			n.Status.Capacity[corev1.ResourceName(name)] = resource.MustParse("1")
		}
		for i := range 2000 {
			n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{
				Type: corev1.NodeConditionType(fmt.Sprint("C", 3000-i)), Status: corev1.ConditionTrue, Message: strings.Repeat("x", 100),
			})
		}
	})
}

// patched returns a Node after a patch of the fleet, as the API server makes it.
func patched(t *testing.T, before *corev1.Node, patch string) *corev1.Node {
	t.Helper()
	original, err := json.Marshal(before)
	if err != nil {
		t.Fatal(err)
	}
	merged, err := strategicpatch.StrategicMergePatch(original, []byte(patch), corev1.Node{})
	if err != nil {
		t.Fatal(err)
	}
	after := &corev1.Node{}
	if err := json.Unmarshal(merged, after); err != nil {
		t.Fatal(err)
	}
	return after
}

// TestFleetChangesNodesOfAnySize tries the writes of a machine's life on a Node that makes every
// rule cost as much as a kubelet can. A rule that exceeds what the API server allows for an
// expression rejects the write, and fails the test. Lists are compared in their order, which a
// strategic merge keeps: to look each element up in the other list takes seconds here.
func TestFleetChangesNodesOfAnySize(t *testing.T) {
	t.Parallel()
	policies := policiesOf(t, FleetTarget())
	claimed := patched(t, oversized(), `{"metadata":{"finalizers":["`+v1alpha1.NodeFinalizerName+`"]}}`)
	marked := patched(t, claimed, `{"status":{"conditions":[{"type":"Terminating","status":"True"}]}}`)
	for name, tc := range map[string]struct {
		before *corev1.Node
		patch  string
		status bool
		want   string
	}{
		"it is claimed": {
			oversized(), `{"metadata":{"labels":{"a":"b"},"finalizers":["` + v1alpha1.NodeFinalizerName + `"]}}`, false, "",
		},
		"it is cordoned":         {claimed, `{"spec":{"unschedulable":true}}`, false, ""},
		"it is tainted":          {claimed, `{"spec":{"taints":[{"key":"x","effect":"NoSchedule"}]}}`, false, ""},
		"it is marked":           {claimed, `{"status":{"conditions":[{"type":"Terminating","status":"True"}]}}`, true, ""},
		"it is marked otherwise": {marked, `{"status":{"conditions":[{"type":"Terminating","status":"False"}]}}`, true, ""},
		"it loses its mark":      {marked, `{"status":{"conditions":[{"$patch":"delete","type":"Terminating"}]}}`, true, ""},
		"it has more capacity":   {claimed, `{"status":{"capacity":{"example.org/x":"1"}}}`, true, ""},
		"its finalizer is removed": {
			marked, `{"metadata":{"$deleteFromPrimitiveList/finalizers":["` + v1alpha1.NodeFinalizerName + `"]}}`, false, "",
		},
		"another's finalizer is removed": {
			claimed, `{"metadata":{"$deleteFromPrimitiveList/finalizers":["example.org/1500"]}}`, false, "finalizers and owners",
		},
		"another's condition changes": {
			claimed, `{"status":{"conditions":[{"type":"C1500","status":"False"}]}}`, true, "of a Node's conditions",
		},
		"another's condition is removed": {
			claimed, `{"status":{"conditions":[{"$patch":"delete","type":"C1500"}]}}`, true, "of a Node's conditions",
		},
		"another's condition is added, too": {
			claimed, `{"status":{"conditions":[{"type":"Other","status":"True"},{"type":"Terminating","status":"True"}]}}`, true,
			"of a Node's conditions",
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := request{status: tc.status, before: tc.before, after: patched(t, tc.before, tc.patch)}
			if got := r.refusal(t, policies); tc.want == "" && got != "" || !strings.Contains(got, tc.want) {
				t.Errorf("refused with %.300q, want %q", got, tc.want)
			}
		})
	}
	for what, r := range map[string]request{
		"finalizers": {before: claimed, after: changed(claimed, func(n *corev1.Node) { slices.Reverse(n.Finalizers) })},
		"conditions": {status: true, before: claimed, after: changed(claimed, func(n *corev1.Node) { slices.Reverse(n.Status.Conditions) })},
	} {
		if got := r.refusal(t, policies); !strings.Contains(got, what) {
			t.Errorf("another order of the %s is refused with %q", what, got)
		}
	}
	if !slices.Contains(claimed.Finalizers, v1alpha1.NodeFinalizerName) || len(marked.Status.Conditions) != len(claimed.Status.Conditions)+1 {
		t.Error("the Node is not claimed or not marked")
	}
}
