package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/harness"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/simulated/cloudapi"
)

const (
	// fresh is how many machines are created, on an idle fleet and on a busy one.
	fresh = 50
	// drainTimeout bounds the whole measurement: hundreds of machines are created for it.
	drainTimeout = 10 * time.Minute
)

// measureDrains creates machines while the fleet is idle, and again while it drains many Nodes with
// pods that never end.
func measureDrains(ctx context.Context, lab *harness.Lab, draining int, s sample) error {
	ctx, cancel := context.WithTimeout(ctx, drainTimeout)
	defer cancel()
	names := map[string]string{}
	for _, what := range []string{"idle", "old", "new"} {
		names[what] = fmt.Sprintf("drain-%s-%d", what, os.Getpid())
		if err := lab.Prepare(ctx, names[what], ""); err != nil {
			return err
		}
	}
	idle, err := createFresh(ctx, lab, names["idle"])
	if err != nil {
		return err
	}
	fmt.Printf("%d machines on an idle fleet: %.2f s; now %d whose pods never end\n", fresh, idle.value, draining)
	if err := beginDrains(ctx, lab, names["old"], draining); err != nil {
		return err
	}
	busy, err := createFresh(ctx, lab, names["new"])
	if err != nil {
		return err
	}
	s["create_50_while_draining_seconds"] = pair{value: busy.value, floor: idle.value}
	s["create_50_while_draining_ratio"] = pair{value: busy.value / idle.value}
	remaining, err := lab.Phases(ctx, names["old"])
	if err != nil {
		return err
	}
	if remaining[v1alpha1.MachineTerminating] != draining {
		return fmt.Errorf("of %d machines whose pods never end, these are left: %v", draining, remaining)
	}
	return endDrains(ctx, lab, names)
}

// createFresh measures how long a MachineDeployment takes until all of its machines run.
func createFresh(ctx context.Context, lab *harness.Lab, namespace string) (pair, error) {
	return timed(ctx, lab, namespace, run(fresh), func() error {
		_, err := lab.Machines.MachineV1alpha1().MachineDeployments(namespace).Create(ctx,
			harness.Deployment(namespace, "md", fresh), metav1.CreateOptions{})
		return err
	})
}

// beginDrains creates machines with a pod each that never ends, deletes them, and waits until all
// pods have been evicted.
func beginDrains(ctx context.Context, lab *harness.Lab, namespace string, draining int) error {
	api := lab.Machines.MachineV1alpha1()
	for created := 0; created < draining; created += fresh {
		d := harness.Deployment(namespace, fmt.Sprintf("md-%d", created/fresh), int32(min(fresh, draining-created)))
		if _, err := api.MachineDeployments(namespace).Create(ctx, d, metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("create MachineDeployment: %w", err)
		}
	}
	if err := lab.Running(ctx, namespace, draining); err != nil {
		return err
	}
	list, err := api.Machines(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("list machines: %w", err)
	}
	pods := lab.Target.CoreV1().Pods(namespace)
	for _, m := range list.Items {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: m.Name, Annotations: map[string]string{cloudapi.AnnotationPodTermination: "-1s"}}}
		pod.Spec = corev1.PodSpec{NodeName: m.Labels[v1alpha1.LabelNode], Containers: []corev1.Container{{Name: "pause", Image: "pause"}}}
		if _, err := pods.Create(ctx, pod, metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("create a pod: %w", err)
		}
	}
	if err := api.MachineDeployments(namespace).DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{}); err != nil {
		return fmt.Errorf("delete MachineDeployments: %w", err)
	}
	return harness.Eventually(ctx, "all pods are evicted", func(ctx context.Context) error {
		list, err := pods.List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		ending := 0
		for _, p := range list.Items {
			if p.DeletionTimestamp != nil {
				ending++
			}
		}
		if ending != draining {
			return fmt.Errorf("%d of %d are", ending, draining)
		}
		return nil
	})
}

// endDrains deletes everything by force.
func endDrains(ctx context.Context, lab *harness.Lab, namespaces map[string]string) error {
	api := lab.Machines.MachineV1alpha1()
	for _, namespace := range namespaces {
		list, err := api.Machines(namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return fmt.Errorf("list machines: %w", err)
		}
		for _, m := range list.Items {
			m.Labels[v1alpha1.LabelForceDeletion] = "true"
			_, forced := api.Machines(namespace).Update(ctx, &m, metav1.UpdateOptions{})
			err = errors.Join(err, forced)
		}
		err = errors.Join(err, api.MachineDeployments(namespace).DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{}))
		if err != nil {
			return fmt.Errorf("delete by force: %w", err)
		}
		if err := lab.Running(ctx, namespace, 0); err != nil {
			return err
		}
	}
	return nil
}
