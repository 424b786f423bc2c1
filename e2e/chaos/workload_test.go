//go:build e2e

package chaos

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/harness"
)

// workload runs n pods on the Node of the stepped machine, of which all but one have to be ready,
// and which are recreated on the Node of the other one; and one more that may be evicted at any
// time.
func (s *stepper) workload(n int32) {
	s.Helper()
	core, apps := s.lab.Target.CoreV1(), s.lab.Target.AppsV1().ReplicaSets(s.namespace)
	_, err := core.Namespaces().Create(s.ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.namespace}}, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		s.Fatal(err)
	}
	s.must(harness.Eventually(s.ctx, "pods can be created", func(ctx context.Context) error {
		_, err := core.ServiceAccounts(s.namespace).Get(ctx, "default", metav1.GetOptions{})
		return err
	}))
	labels := map[string]string{"app": "web"}
	set, err := apps.Create(s.ctx, &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: appsv1.ReplicaSetSpec{
		Replicas: &n, Selector: &metav1.LabelSelector{MatchLabels: labels},
		Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{
			NodeSelector: map[string]string{corev1.LabelHostname: stepped},
			Containers:   []corev1.Container{{Name: "pause", Image: "pause"}},
		}},
	}}, metav1.CreateOptions{})
	s.must(err)
	_, err = s.lab.Target.PolicyV1().PodDisruptionBudgets(s.namespace).Create(s.ctx, &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec: policyv1.PodDisruptionBudgetSpec{
			MinAvailable: new(intstr.FromInt32(n - 1)), Selector: &metav1.LabelSelector{MatchLabels: labels},
		},
	}, metav1.CreateOptions{})
	s.must(err)
	s.must(harness.Eventually(s.ctx, "the pods run, and their PodDisruptionBudget counts them", func(ctx context.Context) error {
		budget, err := s.lab.Target.PolicyV1().PodDisruptionBudgets(s.namespace).Get(ctx, "web", metav1.GetOptions{})
		if err == nil && budget.Status.DisruptionsAllowed != 1 {
			err = fmt.Errorf("status %+v", budget.Status)
		}
		return err
	}))
	elsewhere := fmt.Appendf(nil, `{"spec":{"template":{"spec":{"nodeSelector":{%q:%q}}}}}`, corev1.LabelHostname, other)
	set, err = apps.Patch(s.ctx, set.Name, types.MergePatchType, elsewhere, metav1.PatchOptions{})
	s.must(err)
	alone := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "alone"}, Spec: set.Spec.Template.Spec}
	alone.Spec.NodeName, alone.Spec.NodeSelector = stepped, nil
	_, err = core.Pods(s.namespace).Create(s.ctx, alone, metav1.CreateOptions{})
	s.must(err)
	pods, err := core.Pods(s.namespace).List(s.ctx, metav1.ListOptions{})
	s.must(err)
	for _, p := range pods.Items {
		if s.pods = append(s.pods, p.Name); p.Spec.NodeName != stepped {
			s.Fatalf("pod %s does not run on Node %s", p.Name, stepped)
		}
	}
}

// idle ends the workload.
func (s *stepper) idle() {
	s.Helper()
	s.must(s.lab.Target.PolicyV1().PodDisruptionBudgets(s.namespace).Delete(s.ctx, "web", metav1.DeleteOptions{}))
	s.must(s.lab.Target.AppsV1().ReplicaSets(s.namespace).Delete(s.ctx, "web", metav1.DeleteOptions{}))
}
