package main

import (
	"context"
	"fmt"
	"os"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/harness"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/simulated/cloudapi"
)

// stopTime is how long VMs take to stop in this measurement.
const stopTime = 20 * time.Second

// measureStops deletes the machines at a cloud whose VMs stop slowly, and counts its calls
// meanwhile.
func measureStops(ctx context.Context, lab *harness.Lab, s sample) error {
	ctx, cancel := context.WithTimeout(ctx, harness.Standstill)
	defer cancel()
	namespace := fmt.Sprintf("stop-%d", os.Getpid())
	if err := lab.Prepare(ctx, namespace, ""); err != nil {
		return err
	}
	if err := lab.Cloud.Set(ctx, fmt.Sprintf(`{"stopTime":{"mean":%q}}`, stopTime)); err != nil {
		return err
	}
	api := lab.Machines.MachineV1alpha1().MachineDeployments(namespace)
	for i := range deployments {
		if _, err := api.Create(ctx, harness.Deployment(namespace, fmt.Sprintf("md-%d", i), machines), metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("create MachineDeployment: %w", err)
		}
	}
	if err := lab.Running(ctx, namespace, total); err != nil {
		return err
	}
	begin := time.Now()
	took, err := timed(ctx, lab, namespace, gone, func() error {
		return api.DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{})
	})
	if err != nil {
		return err
	}
	calls, err := lab.Cloud.Calls()
	if err != nil {
		return err
	}
	requested := 0
	for _, c := range calls {
		if c.Operation == cloudapi.OpDeleteInstance && c.Start.After(begin) {
			requested++
		}
	}
	s["delete_100_slow_stop_seconds"] = pair{value: took.value, floor: stopTime.Seconds()}
	s["delete_slow_stop_calls_per_machine"] = pair{value: float64(requested) / total}
	return lab.Cloud.Set(ctx, settings)
}
