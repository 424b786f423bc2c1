//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/simulated/cloudapi"
)

// neverEnds is the annotation of a pod on a simulated Node that never ends.
var neverEnds = map[string]string{cloudapi.AnnotationPodTermination: "-1s"}

// workload prepares the test's namespace in the target cluster for pods.
func (s *space) workload() {
	s.Helper()
	core := s.lab.Target.CoreV1()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.name}}
	if _, err := core.Namespaces().Create(s.Context(), namespace, metav1.CreateOptions{}); err == nil {
		s.Cleanup(func() {
			err := core.Namespaces().Delete(context.WithoutCancel(s.Context()), s.name, metav1.DeleteOptions{})
			if err != nil && !apierrors.IsNotFound(err) {
				s.Error(err)
			}
		})
	} else if !apierrors.IsAlreadyExists(err) { // it does when the target cluster is the control cluster
		s.Fatal(err)
	}
	s.Cleanup(func() {
		if s.Failed() {
			target := "--kubeconfig=" + filepath.Join(s.lab.Dir, "target.kubeconfig")
			found, _ := s.lab.Kubectl(context.WithoutCancel(s.Context()), target, "-n", s.name, "get", "pods,pdb,events")
			s.Logf("in namespace %s of the target cluster:\n%s", s.name, found)
		}
	})
	s.eventually("pods can be created", func(ctx context.Context) error {
		_, err := core.ServiceAccounts(s.name).Get(ctx, "default", metav1.GetOptions{})
		return err
	})
}

// pause is the spec of a pod that does nothing.
func pause() corev1.PodSpec {
	return corev1.PodSpec{Containers: []corev1.Container{{Name: "pause", Image: "pause"}}}
}

// podOn creates a pod on a Node.
func (s *space) podOn(node, name string, spec corev1.PodSpec, annotations map[string]string) {
	s.Helper()
	meta := metav1.ObjectMeta{Name: name, Labels: map[string]string{"app": name}, Annotations: annotations}
	pod := &corev1.Pod{ObjectMeta: meta, Spec: spec}
	pod.Spec.NodeName = node
	_, err := s.lab.Target.CoreV1().Pods(s.name).Create(s.Context(), pod, metav1.CreateOptions{})
	s.must(err)
}

// spread creates a ReplicaSet whose pods run on these Nodes only, one on each.
func (s *space) spread(name string, replicas int32, nodes []string) {
	s.Helper()
	labels := map[string]string{"app": name}
	set := &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: appsv1.ReplicaSetSpec{
		Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: labels},
		Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: pause()},
	}}
	set.Spec.Template.Spec.Affinity = &corev1.Affinity{
		NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
			NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{{
				Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpIn, Values: nodes,
			}}}},
		}},
		PodAntiAffinity: &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{
			LabelSelector: &metav1.LabelSelector{MatchLabels: labels}, TopologyKey: corev1.LabelHostname,
		}}},
	}
	_, err := s.lab.Target.AppsV1().ReplicaSets(s.name).Create(s.Context(), set, metav1.CreateOptions{})
	s.must(err)
}

// budget creates a PodDisruptionBudget for the pods of a ReplicaSet, and waits until it is in
// force.
func (s *space) budget(name, app string, minAvailable, pods int32) {
	s.Helper()
	budgets := s.lab.Target.PolicyV1().PodDisruptionBudgets(s.name)
	_, err := budgets.Create(s.Context(), &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: policyv1.PodDisruptionBudgetSpec{
			MinAvailable: new(intstr.FromInt32(minAvailable)), Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}},
		},
	}, metav1.CreateOptions{})
	s.must(err)
	s.eventually("PodDisruptionBudget "+name+" counts its pods", func(ctx context.Context) error {
		b, err := budgets.Get(ctx, name, metav1.GetOptions{})
		if err == nil && (b.Status.CurrentHealthy != pods || b.Status.ObservedGeneration != b.Generation) {
			err = fmt.Errorf("status %+v", b.Status)
		}
		return err
	})
}

// podsOf lists the pods of an app that run and are ready.
func (s *space) podsOf(ctx context.Context, app string) (ready []corev1.Pod, err error) {
	list, err := s.lab.Target.CoreV1().Pods(s.name).List(ctx, metav1.ListOptions{LabelSelector: "app=" + app})
	if err != nil {
		return nil, err
	}
	for _, p := range list.Items {
		if isReady(&p) {
			ready = append(ready, p)
		}
	}
	return ready, nil
}

// isReady reports whether the pod counts for its PodDisruptionBudgets.
func isReady(p *corev1.Pod) bool {
	return p.DeletionTimestamp == nil && slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// ready waits until so many pods of an app are ready.
func (s *space) ready(app string, n int) {
	s.Helper()
	s.eventually(fmt.Sprintf("%d pods of %s are ready", n, app), func(ctx context.Context) error {
		pods, err := s.podsOf(ctx, app)
		if err == nil && len(pods) != n {
			err = fmt.Errorf("%d are", len(pods))
		}
		return err
	})
}

// openTo is the label of the Nodes on which a test's pods may run; the value is the test's
// namespace.
const openTo = "e2e.example.com/open-to"

// open allows the test's pods to run on a Node from now on.
func (s *space) open(node string) {
	s.Helper()
	patch := fmt.Appendf(nil, `{"metadata":{"labels":{%q:%q}}}`, openTo, s.name)
	_, err := s.lab.Target.CoreV1().Nodes().Patch(s.Context(), node, types.MergePatchType, patch, metav1.PatchOptions{})
	s.must(err)
}
