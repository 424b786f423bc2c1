package light

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// evict deletes a pod if the budgets that select it allow that. Errors: those of the eviction API.
func (c *Cluster) evict(ctx context.Context, namespace, name string, eviction *policyv1.Eviction) error {
	pods := c.api().Core().CoreV1().Pods(namespace)
	pod, err := pods.Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	options := metav1.DeleteOptions{}
	if eviction.DeleteOptions != nil {
		options = *eviction.DeleteOptions
	}
	if pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed || pod.Status.Phase == corev1.PodPending ||
		pod.DeletionTimestamp != nil {
		return pods.Delete(ctx, name, options)
	}
	budgets, err := c.budgetsOf(pod)
	if err != nil {
		return err
	}
	if len(budgets) > 1 {
		return apierrors.NewInternalError(fmt.Errorf("pod %s: expected at most one disruption budget, got %d", name, len(budgets)))
	}
	for _, budget := range budgets {
		if err := c.disrupt(ctx, budget, pod); err != nil {
			return err
		}
	}
	return pods.Delete(ctx, name, options)
}

// budgetsOf returns the disruption budgets that select a pod.
func (c *Cluster) budgetsOf(pod *corev1.Pod) (all []*policyv1.PodDisruptionBudget, err error) {
	for _, o := range c.api().List("poddisruptionbudgets") {
		if o.GetNamespace() != pod.Namespace {
			continue
		}
		budget := &policyv1.PodDisruptionBudget{}
		raw, err := json.Marshal(o.Object)
		if err == nil {
			err = json.Unmarshal(raw, budget)
		}
		if err != nil {
			return nil, fmt.Errorf("disruption budget %s: %w", o.GetName(), err)
		}
		selector, err := metav1.LabelSelectorAsSelector(budget.Spec.Selector)
		if err != nil {
			return nil, fmt.Errorf("disruption budget %s: %w", o.GetName(), err)
		}
		if selector.Matches(labels.Set(pod.Labels)) {
			all = append(all, budget)
		}
	}
	return all, nil
}

// disrupt takes one disruption of a budget. Errors: 429 when there is none, 409 when another client
// has changed the budget meanwhile.
func (c *Cluster) disrupt(ctx context.Context, budget *policyv1.PodDisruptionBudget, pod *corev1.Pod) error {
	if budget.Status.DisruptionsAllowed <= 0 {
		refused := apierrors.NewTooManyRequests("Cannot evict pod as it would violate the pod's disruption budget.", 0)
		refused.ErrStatus.Details.Causes = append(refused.ErrStatus.Details.Causes, metav1.StatusCause{
			Type: policyv1.DisruptionBudgetCause,
			Message: fmt.Sprintf("The disruption budget %s needs %d healthy pods and has %d currently",
				budget.Name, budget.Status.DesiredHealthy, budget.Status.CurrentHealthy),
		})
		return refused
	}
	budget.Status.DisruptionsAllowed--
	if budget.Status.DisruptedPods == nil {
		budget.Status.DisruptedPods = map[string]metav1.Time{}
	}
	budget.Status.DisruptedPods[pod.Name] = metav1.NewTime(c.clock.Now().Truncate(time.Second))
	_, err := c.api().Core().PolicyV1().PodDisruptionBudgets(budget.Namespace).UpdateStatus(ctx, budget, metav1.UpdateOptions{})
	return err
}
