package objectcache

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

func TestObjectsAreTrimmedOnTheirPagesAndWhenTheyAreReceived(t *testing.T) {
	whole := func() corev1.Node {
		n := corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "m"}}}}
		n.Spec.ProviderID = "p"
		n.Status = corev1.NodeStatus{
			Capacity: corev1.ResourceList{}, Allocatable: corev1.ResourceList{}, Conditions: []corev1.NodeCondition{{Type: "Ready"}},
			VolumesAttached: []corev1.AttachedVolume{{Name: "v"}}, VolumesInUse: []corev1.UniqueVolumeName{"v"},
			Images: []corev1.ContainerImage{{SizeBytes: 1}}, NodeInfo: corev1.NodeSystemInfo{MachineID: "i"},
		}
		return n
	}
	want := whole()
	want.ManagedFields = nil
	want.Status = corev1.NodeStatus{
		Capacity: want.Status.Capacity, Conditions: want.Status.Conditions, VolumesAttached: want.Status.VolumesAttached,
	}
	lists := &ListerWatcher{Source: Source{List: func(context.Context, metav1.ListOptions) (runtime.Object, error) {
		return &corev1.NodeList{Items: []corev1.Node{whole()}}, nil
	}}}
	list, err := lists.ListWithContext(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(&corev1.NodeList{Items: []corev1.Node{want}}, list); diff != "" {
		t.Errorf("page (-want +got):\n%s", diff)
	}
	received, err := Received[*corev1.Node](new(whole()))
	if diff := cmp.Diff(metav1.Object(&want), received); diff != "" || err != nil {
		t.Errorf("received (-want +got):\n%s, %v", diff, err)
	}
}
