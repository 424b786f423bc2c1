package lifecycle

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestIsCordonedByAutoscaler(t *testing.T) {
	const cordon, taints = `{"f:spec":{"f:unschedulable":{}}}`, `{"f:metadata":{"f:labels":{}},"f:spec":{"f:taints":{}}}`
	by := func(manager, fields string) metav1.ManagedFieldsEntry {
		return metav1.ManagedFieldsEntry{Manager: manager, FieldsV1: metav1.NewFieldsV1(fields)}
	}
	for name, tc := range map[string]struct {
		schedulable bool
		entries     []metav1.ManagedFieldsEntry
		want        bool
	}{
		"by the autoscaler":                 {entries: []metav1.ManagedFieldsEntry{by("cluster-autoscaler", cordon)}, want: true},
		"by an autoscaler for one platform": {entries: []metav1.ManagedFieldsEntry{by("cluster-autoscaler-amd64", cordon)}, want: true},
		"by the autoscaler; others have written other fields": {
			entries: []metav1.ManagedFieldsEntry{by("kubelet", taints), by("cluster-autoscaler", cordon), {Manager: "kubectl"}}, want: true,
		},
		"by a user": {entries: []metav1.ManagedFieldsEntry{by("kubectl", cordon)}},
		"by a user; the autoscaler has written other fields": {
			entries: []metav1.ManagedFieldsEntry{by("kubectl", cordon), by("cluster-autoscaler", taints)},
		},
		"by a user and the autoscaler":    {entries: []metav1.ManagedFieldsEntry{by("cluster-autoscaler", cordon), by("kubectl", cordon)}},
		"by an unknown client":            {},
		"by one whose record is not JSON": {entries: []metav1.ManagedFieldsEntry{by("cluster-autoscaler", "{")}},
		"by no client any more":           {schedulable: true, entries: []metav1.ManagedFieldsEntry{by("cluster-autoscaler", cordon)}},
	} {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{ManagedFields: tc.entries}, Spec: corev1.NodeSpec{Unschedulable: !tc.schedulable}}
		if got := isCordonedByAutoscaler(node); got != tc.want {
			t.Errorf("%s: %t, want %t", name, got, tc.want)
		}
	}
}
