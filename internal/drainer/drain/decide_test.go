package drain

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestMayRelease(t *testing.T) {
	pod := func(owner string) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{OwnerReferences: []metav1.OwnerReference{{Kind: owner, Controller: new(true)}}}}
	}
	for name, tc := range map[string]struct {
		change func(node *corev1.Node)
		pods   []*corev1.Pod
		want   bool
	}{
		"nothing is there":     {want: true},
		"what ends with it":    {pods: []*corev1.Pod{pod("DaemonSet")}, want: true},
		"a pod has to leave":   {pods: []*corev1.Pod{pod("DaemonSet"), pod("ReplicaSet")}},
		"a volume is attached": {change: func(n *corev1.Node) { n.Status.VolumesAttached = []corev1.AttachedVolume{{Name: "v"}} }},
		"pods can come":        {change: func(n *corev1.Node) { n.Spec.Unschedulable = false }},
		"it is being deleted":  {change: func(n *corev1.Node) { n.DeletionTimestamp = new(metav1.Now()) }},
	} {
		t.Run(name, func(t *testing.T) {
			node := &corev1.Node{Spec: corev1.NodeSpec{Unschedulable: true}}
			if tc.change != nil {
				tc.change(node)
			}
			if got := MayRelease(node, tc.pods); got != tc.want {
				t.Errorf("MayRelease is %v, want %v", got, tc.want)
			}
		})
	}
}
