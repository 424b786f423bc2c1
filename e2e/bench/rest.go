package main

import (
	"context"
	"fmt"
	"os"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/harness"
)

const (
	// restClasses is how many MachineClasses there are at rest, and restMachines how many of them have
	// a machine.
	restClasses, restMachines = 1000, 100
)

// measureRest counts the requests of the fleet at rest, without those for Leases.
func measureRest(ctx context.Context, lab *harness.Lab, rest time.Duration, s sample) error {
	namespace := fmt.Sprintf("rest-%d", os.Getpid())
	if err := lab.Prepare(ctx, namespace, ""); err != nil {
		return err
	}
	if _, err := timed(ctx, lab, namespace, run(restMachines), func() error { return createClasses(ctx, lab, namespace) }); err != nil {
		return err
	}
	if err := rebalanced(ctx, lab); err != nil {
		return err
	}
	if err := pause(ctx, time.Minute); err != nil { // in which new machines are reconciled once more
		return err
	}
	position, err := lab.AuditEnd()
	if err != nil {
		return err
	}
	if err := pause(ctx, rest); err != nil {
		return err
	}
	requests, err := lab.Requests(position)
	if err != nil {
		return err
	}
	number := 0.0
	for _, r := range requests {
		if counts(r) && r.IsFleet() {
			number++
		}
	}
	s["rest_requests_per_minute_of_1000_classes"] = pair{value: number / rest.Minutes()}
	fmt.Printf("in %s at rest, with %d classes:\n%s", rest, restClasses, kinds(requests, restMachines))
	api := lab.Machines.MachineV1alpha1()
	if _, err := timed(ctx, lab, namespace, gone, func() error {
		return api.MachineDeployments(namespace).DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{})
	}); err != nil {
		return err
	}
	return api.MachineClasses(namespace).DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{})
}

// createClasses creates the classes, and MachineDeployments of one machine.
func createClasses(ctx context.Context, lab *harness.Lab, namespace string) error {
	api := lab.Machines.MachineV1alpha1()
	for i := range restClasses {
		class := harness.Class(namespace, "")
		class.Name = fmt.Sprintf("class-%d", i)
		if _, err := api.MachineClasses(namespace).Create(ctx, class, metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("create MachineClass: %w", err)
		}
		if i >= restMachines {
			continue
		}
		d := harness.Deployment(namespace, fmt.Sprintf("md-%d", i), 1)
		d.Spec.Template.Spec.Class.Name = class.Name
		if _, err := api.MachineDeployments(namespace).Create(ctx, d, metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("create MachineDeployment: %w", err)
		}
	}
	return nil
}
