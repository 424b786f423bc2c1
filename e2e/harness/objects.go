package harness

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/simulated"
)

// TagCluster is the tag of a VM with the namespace of its class.
const TagCluster = simulated.TagCluster

// UserData is the user data of the VMs of tests.
const UserData = "#!/bin/sh\njoin --token <<BOOTSTRAP_TOKEN>> --name <<MACHINE_NAME>>\n"

// ClassName is the name of the class, and of its Secret, that Prepare creates.
const ClassName = "simulated"

// Prepare creates a namespace with a class and its Secret; providerSpec is the class' JSON, "" for
// defaults.
func (l *Lab) Prepare(ctx context.Context, namespace, providerSpec string) error {
	return l.PrepareUserData(ctx, namespace, providerSpec, UserData)
}

// PrepareUserData is Prepare with other user data.
func (l *Lab) PrepareUserData(ctx context.Context, namespace, providerSpec, userData string) error {
	return l.prepare(ctx, Class(namespace, providerSpec), map[string]string{v1alpha1.SecretKeyUserData: userData})
}

// prepare creates the namespace of a class, its Secret with that content, and the class.
func (l *Lab) prepare(ctx context.Context, class *v1alpha1.MachineClass, content map[string]string) error {
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: class.Namespace}}
	if _, err := l.Control.CoreV1().Namespaces().Create(ctx, ns, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("prepare namespace %s: %w", class.Namespace, err)
	}
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: class.SecretRef.Name}, StringData: content}
	if _, err := l.Control.CoreV1().Secrets(class.Namespace).Create(ctx, secret, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("prepare namespace %s: %w", class.Namespace, err)
	}
	if _, err := l.Machines.MachineV1alpha1().MachineClasses(class.Namespace).Create(ctx, class, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("prepare namespace %s: %w", class.Namespace, err)
	}
	return nil
}

// Class is a class of simulated machines.
func Class(namespace, providerSpec string) *v1alpha1.MachineClass {
	if providerSpec == "" {
		providerSpec = "{}"
	}
	return &v1alpha1.MachineClass{
		ObjectMeta:   metav1.ObjectMeta{Name: ClassName, Namespace: namespace},
		Provider:     simulated.Provider,
		ProviderSpec: runtime.RawExtension{Raw: []byte(providerSpec)},
		SecretRef:    &corev1.SecretReference{Name: ClassName, Namespace: namespace},
	}
}

// Deployment is a MachineDeployment of the class, as Gardener creates them: the label name has its
// own name.
func Deployment(namespace, name string, replicas int32) *v1alpha1.MachineDeployment {
	labels := map[string]string{v1alpha1.LabelName: name}
	return &v1alpha1.MachineDeployment{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace},
		Spec: v1alpha1.MachineDeploymentSpec{
			Replicas: replicas,
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: v1alpha1.MachineTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       v1alpha1.MachineSpec{Class: v1alpha1.ClassSpec{Kind: "MachineClass", Name: ClassName}},
			},
		},
	}
}

// ScaleDeployment sets the replicas of a MachineDeployment.
func (l *Lab) ScaleDeployment(ctx context.Context, namespace, name string, replicas int) error {
	patch := fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, replicas)
	_, err := l.Machines.MachineV1alpha1().MachineDeployments(namespace).Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{})
	if err != nil {
		return fmt.Errorf("scale MachineDeployment %s: %w", name, err)
	}
	return nil
}

// Phases counts the machines of a namespace by phase.
func (l *Lab) Phases(ctx context.Context, namespace string) (map[v1alpha1.MachinePhase]int, error) {
	list, err := l.Machines.MachineV1alpha1().Machines(namespace).List(ctx, metav1.ListOptions{ResourceVersion: "0"})
	if err != nil {
		return nil, fmt.Errorf("list machines: %w", err)
	}
	phases := map[v1alpha1.MachinePhase]int{}
	for _, m := range list.Items {
		phases[m.Status.CurrentStatus.Phase]++
	}
	return phases, nil
}

// Running waits until a namespace has exactly n machines, and all of them run.
func (l *Lab) Running(ctx context.Context, namespace string, n int) error {
	return Eventually(ctx, fmt.Sprintf("%d machines run in %s", n, namespace), func(ctx context.Context) error {
		phases, err := l.Phases(ctx, namespace)
		if err != nil {
			return err
		}
		if phases[v1alpha1.MachineRunning] != n || len(phases) > min(n, 1) {
			return fmt.Errorf("machines by phase: %v", phases)
		}
		return nil
	})
}

// WaitCollected waits until the garbage collector of the control cluster watches Machines, which it
// begins within 30 s of the CRD. Before that it deletes a MachineSet without orphaning its
// machines, and deletes the machines when it observes them.
func (l *Lab) WaitCollected(ctx context.Context) error {
	api := l.Machines.MachineV1alpha1().Machines(metav1.NamespaceDefault)
	m, err := api.Create(ctx, &v1alpha1.Machine{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "collected-", OwnerReferences: []metav1.OwnerReference{{
			APIVersion: v1alpha1.SchemeGroupVersion.String(), Kind: "MachineSet", Name: "gone", UID: "gone",
		}}},
		Spec: v1alpha1.MachineSpec{Class: v1alpha1.ClassSpec{Kind: "MachineClass", Name: "none"}},
	}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("create a machine to collect: %w", err)
	}
	return Eventually(ctx, "the garbage collector watches Machines", func(ctx context.Context) error {
		_, err := api.Get(ctx, m.Name, metav1.GetOptions{})
		if err == nil {
			return fmt.Errorf("machine %s is still there", m.Name)
		}
		if apierrors.IsNotFound(err) {
			return nil
		}
		return err
	})
}
