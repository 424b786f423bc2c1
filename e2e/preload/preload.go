package preload

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/harness"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/simulated/cloudapi"
)

// parallel is how many requests are in flight at a time; with more an API server is not faster.
const parallel = 32

// Load is a number of MachineDeployments of the same size in one namespace, which Lab.Prepare has
// created.
type Load struct {
	Namespace             string
	Deployments, Machines int // machines of each deployment
}

// Create creates all objects and returns when the last one is written, or on the first error.
func (l Load) Create(ctx context.Context, lab *harness.Lab) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	work := make(chan func() error)
	var workers sync.WaitGroup
	for range parallel {
		workers.Go(func() {
			for task := range work {
				if err := task(); err != nil {
					cancel(err)
				}
			}
		})
	}
	err := l.tasks(ctx, lab, func(task func() error) {
		select {
		case work <- task:
		case <-ctx.Done():
		}
	})
	close(work)
	workers.Wait()
	return errors.Join(err, context.Cause(ctx))
}

// tasks creates the parents and returns the tasks that create the machines.
func (l Load) tasks(ctx context.Context, lab *harness.Lab, do func(task func() error)) error {
	for i := range l.Deployments {
		set, err := l.parents(ctx, lab, l.Deployment(i))
		if err != nil {
			return err
		}
		for j := range l.Machines {
			do(func() error { return machine(ctx, lab, set, fmt.Sprintf("%s-%d", set.Name, j)) })
		}
	}
	return nil
}

// Deployment is the name of a MachineDeployment, by its number. Nodes are named after it, and have
// no namespace.
func (l Load) Deployment(i int) string { return fmt.Sprintf("%s-%d", l.Namespace, i) }

// parents creates a MachineDeployment and its only MachineSet.
func (l Load) parents(ctx context.Context, lab *harness.Lab, name string) (*v1alpha1.MachineSet, error) {
	api := lab.Machines.MachineV1alpha1()
	d := harness.Deployment(l.Namespace, name, int32(l.Machines))
	d.Finalizers = []string{v1alpha1.FinalizerName}
	d, err := api.MachineDeployments(l.Namespace).Create(ctx, d, metav1.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("preload: %w", err)
	}
	const hash = "1234567890"
	template := d.Spec.Template.DeepCopy()
	template.Labels[v1alpha1.LabelMachineTemplateHash] = hash
	set := &v1alpha1.MachineSet{
		ObjectMeta: metav1.ObjectMeta{
			Name: name + "-set", Namespace: l.Namespace, Labels: maps.Clone(template.Labels), Finalizers: []string{v1alpha1.FinalizerName},
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(d, v1alpha1.SchemeGroupVersion.WithKind("MachineDeployment"))},
		},
		Spec: v1alpha1.MachineSetSpec{
			Replicas: int32(l.Machines), Template: *template,
			Selector: &metav1.LabelSelector{MatchLabels: maps.Clone(template.Labels)},
		},
	}
	if set, err = api.MachineSets(l.Namespace).Create(ctx, set, metav1.CreateOptions{}); err != nil {
		return nil, fmt.Errorf("preload: %w", err)
	}
	return set, nil
}

// machine creates a running Machine, and its Node.
func machine(ctx context.Context, lab *harness.Lab, set *v1alpha1.MachineSet, name string) error {
	now := metav1.Now()
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Labels: map[string]string{v1alpha1.LabelMachineName: name}, Finalizers: []string{v1alpha1.NodeFinalizerName},
		},
		Spec: corev1.NodeSpec{ProviderID: cloudapi.ProviderIDPrefix + "preload/" + name},
		Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{
			Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady", LastHeartbeatTime: now, LastTransitionTime: now,
		}}},
	}
	if _, err := lab.Target.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("preload: %w", err)
	}
	api := lab.Machines.MachineV1alpha1().Machines(set.Namespace)
	m := &v1alpha1.Machine{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Namespace: set.Namespace, Labels: maps.Clone(set.Spec.Template.Labels), Finalizers: []string{v1alpha1.FinalizerName},
			Annotations:     map[string]string{v1alpha1.AnnotationPriority: v1alpha1.PriorityDefault},
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(set, v1alpha1.SchemeGroupVersion.WithKind("MachineSet"))},
		},
		Spec: *set.Spec.Template.Spec.DeepCopy(),
	}
	m.Labels[v1alpha1.LabelNode] = name
	m.Spec.ProviderID = node.Spec.ProviderID
	m, err := api.Create(ctx, m, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("preload: %w", err)
	}
	m.Status = v1alpha1.MachineStatus{
		Conditions:    node.Status.Conditions,
		CurrentStatus: v1alpha1.CurrentStatus{Phase: v1alpha1.MachineRunning, LastUpdateTime: now},
		LastOperation: v1alpha1.LastOperation{
			Type: v1alpha1.MachineOperationHealthCheck, State: v1alpha1.MachineStateSuccessful, LastUpdateTime: now,
			Description: fmt.Sprintf("Machine %s successfully joined the cluster", name),
		},
	}
	if _, err := api.UpdateStatus(ctx, m, metav1.UpdateOptions{}); err != nil {
		return fmt.Errorf("preload: %w", err)
	}
	return nil
}
