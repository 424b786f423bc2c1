package targettest

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
)

// Requests returns the requests that the cluster has received, in their order, each as "patch
// nodes" or "patch nodes/status".
func Requests(cluster *fake.Clientset) []string {
	var created []string
	for _, a := range cluster.Actions() {
		created = append(created, strings.TrimSuffix(a.GetVerb()+" "+a.GetResource().Resource+"/"+a.GetSubresource(), "/"))
	}
	return created
}

// PodOn returns a pod of the namespace "a" on a Node, whose UID is its name. owner is the kind of
// its controller; "" means none.
func PodOn(node, name, owner string) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "a", UID: types.UID(name)}, Spec: corev1.PodSpec{NodeName: node}}
	if owner != "" {
		pod.OwnerReferences = []metav1.OwnerReference{{Kind: owner, Controller: new(true)}}
	}
	return pod
}
