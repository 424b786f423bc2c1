package manifests

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
)

func TestPoliciesOfTheTargetClusterAboutNodes(t *testing.T) {
	t.Parallel()
	const spec, finalizers, hostname, restricted = "of a Node's spec", "finalizers and owners", "hostname", "node-restriction.kubernetes.io/"
	const status, conditions, capacity = "of a Node's status", "of a Node's conditions", "of a Node's capacity"
	change := func(f func(*corev1.Node)) request { return request{before: node(), after: changed(node(), f)} }
	inStatus := func(f func(*corev1.Node)) request {
		r := change(f)
		r.status = true
		return r
	}
	large := changed(node(), func(n *corev1.Node) {
		for i := range 50 {
			n.Status.Images = append(n.Status.Images, corev1.ContainerImage{Names: []string{strings.Repeat("x", 200), fmt.Sprint(i)}, SizeBytes: 1})
		}
		for i := range 500 {
			n.Labels[fmt.Sprintf("example.org/%d", i)] = strings.Repeat("x", 60)
		}
		for i := range 30 {
			n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{
				Type: corev1.NodeConditionType(fmt.Sprint(i)), Message: strings.Repeat("x", 500),
			})
		}
	})
	runPolicyCases(t, policiesOf(t, FleetTarget()), []policyCase{
		{"a Node is claimed", change(func(n *corev1.Node) {
			n.Labels[v1alpha1.LabelMachineName], n.Labels[v1alpha1.LabelSlot] = "m", "7"
			n.Annotations = map[string]string{v1alpha1.AnnotationLastAppliedNodeTemplate: "{}"}
			n.Finalizers = append(n.Finalizers, v1alpha1.NodeFinalizerName)
			n.Spec.Taints = []corev1.Taint{{Key: "gpu", Effect: corev1.TaintEffectNoSchedule}}
			n.Spec.Unschedulable = true
		}), ""},
		{"a large Node is changed", request{before: large, after: changed(large, func(n *corev1.Node) { n.Spec.Unschedulable = true })}, ""},
		{"the status of a large Node is changed", request{status: true, before: large, after: changed(large, func(n *corev1.Node) {
			n.Status.Capacity["example.org/x"] = resource.MustParse("1")
		})}, ""},
		{"a Node without anything is changed", request{before: &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "m"}}, after: &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: "m", Labels: map[string]string{"a": "b"}},
		}}, ""},
		{"a Node loses its finalizer", request{
			before: changed(node(), func(n *corev1.Node) { n.Finalizers = append(n.Finalizers, v1alpha1.NodeFinalizerName) }), after: node(),
		}, ""},
		{"a Node loses another finalizer", change(func(n *corev1.Node) { n.Finalizers = nil }), finalizers},
		{"a Node gets an owner", change(func(n *corev1.Node) { n.OwnerReferences = []metav1.OwnerReference{{Name: "x"}} }), finalizers},
		{"a Node gets another provider ID", change(func(n *corev1.Node) { n.Spec.ProviderID = "x" }), spec},
		{"a Node loses its provider ID", change(func(n *corev1.Node) { n.Spec.ProviderID = "" }), spec},
		{"a Node gets another pod CIDR", change(func(n *corev1.Node) { n.Spec.PodCIDRs = []string{"10.0.0.0/8"} }), spec},
		{"a Node gets another host name", change(func(n *corev1.Node) { n.Labels["kubernetes.io/hostname"] = "x" }), hostname},
		{"a Node gets a restricted label", change(func(n *corev1.Node) { n.Labels["node-restriction.kubernetes.io/x"] = "y" }), restricted},
		{"a Node gets another value of a restricted label", change(func(n *corev1.Node) {
			n.Labels["example.node-restriction.kubernetes.io/pool"] = "b"
		}), restricted},
		{"a Node loses a restricted label", change(func(n *corev1.Node) {
			delete(n.Labels, "example.node-restriction.kubernetes.io/pool")
		}), restricted},
		{"a Node gets a restricted label by its status", inStatus(func(n *corev1.Node) {
			n.Labels["node-restriction.kubernetes.io/x"] = "y"
		}), restricted},

		{"a Node is marked", inStatus(func(n *corev1.Node) {
			n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{Type: v1alpha1.NodeTerminating, Status: corev1.ConditionTrue})
		}), ""},
		{
			"a Node gets virtual capacity", inStatus(func(n *corev1.Node) { n.Status.Capacity["example.com/dongle"] = resource.MustParse("2") }), "",
		},
		{"a Node is said not to be ready", inStatus(func(n *corev1.Node) { n.Status.Conditions[0].Status = corev1.ConditionFalse }), conditions},
		{"a Node loses a condition", inStatus(func(n *corev1.Node) { n.Status.Conditions = nil }), conditions},
		{"a Node gets more CPUs", inStatus(func(n *corev1.Node) { n.Status.Capacity["cpu"] = resource.MustParse("200") }), capacity},
		{"a Node loses its memory", inStatus(func(n *corev1.Node) { delete(n.Status.Capacity, "memory") }), capacity},
		{"a Node can allocate more", inStatus(func(n *corev1.Node) { n.Status.Allocatable["cpu"] = resource.MustParse("200") }), status},
		{"a Node gets another address", inStatus(func(n *corev1.Node) { n.Status.Addresses[0].Address = "10.6.6.6" }), status},
		{"a Node is another machine", inStatus(func(n *corev1.Node) { n.Status.NodeInfo.MachineID = "x" }), status},
		{"a Node gets volumes", inStatus(func(n *corev1.Node) { n.Status.VolumesAttached = []corev1.AttachedVolume{{Name: "x"}} }), status},
	})
}
