package main

import (
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/harness"
)

// The load: numbers of MachineDeployments, and of machines of each.
const (
	deployments = 10
	machines    = 10
	total       = deployments * machines
)

// settled is how long a measurement waits before writes are counted, so that none is missed.
const settled = 2 * time.Second

// measureFleet measures how the fleet creates and deletes the machines.
func measureFleet(ctx context.Context, lab *harness.Lab, namespace string) (sample, error) {
	ctx, cancel := context.WithTimeout(ctx, harness.Standstill)
	defer cancel()
	if err := lab.Prepare(ctx, namespace, ""); err != nil {
		return nil, err
	}
	api := lab.Machines.MachineV1alpha1()
	position, err := lab.AuditEnd()
	if err != nil {
		return nil, err
	}
	s := sample{}
	s["create_100_seconds"], err = timed(ctx, lab, namespace, run(total), func() error {
		for i := range deployments {
			d := harness.Deployment(namespace, fmt.Sprintf("md-%d", i), machines)
			if _, err := api.MachineDeployments(namespace).Create(ctx, d, metav1.CreateOptions{}); err != nil {
				return fmt.Errorf("create MachineDeployment: %w", err)
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	if position, err = count(ctx, lab, position, s, "create"); err != nil {
		return nil, err
	}
	s["delete_100_seconds"], err = timed(ctx, lab, namespace, gone, func() error {
		for i := range deployments {
			if err := api.MachineDeployments(namespace).Delete(ctx, fmt.Sprintf("md-%d", i), metav1.DeleteOptions{}); err != nil {
				return fmt.Errorf("delete MachineDeployment: %w", err)
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	_, err = count(ctx, lab, position, s, "delete")
	life := s["create_writes_per_machine"].value + s["create_token_writes_per_machine"].value + s["delete_writes_per_machine"].value
	s["life_writes_per_machine"] = pair{value: life}
	return s, err
}

// count adds the fleet's writes since the position, for each machine, and returns the next
// position.
func count(ctx context.Context, lab *harness.Lab, position harness.AuditPosition, s sample, what string) (harness.AuditPosition, error) {
	select {
	case <-ctx.Done():
		return nil, fmt.Errorf("count the writes: %w", ctx.Err())
	case <-time.After(settled):
	}
	requests, err := lab.Requests(position)
	if err != nil {
		return nil, err
	}
	own, tokens := 0, 0
	for _, r := range requests {
		switch {
		case !r.IsFleet() || !r.IsWrite():
		case r.IsToken():
			tokens++
		default:
			own++
		}
	}
	s[what+"_writes_per_machine"] = pair{value: float64(own) / total}
	if what == "create" {
		s["create_token_writes_per_machine"] = pair{value: float64(tokens) / total}
	}
	return lab.AuditEnd()
}

// run and gone report whether the end of a measurement is reached, by the phases of the existing
// machines.
func run(desired int) func(phases map[string]v1alpha1.MachinePhase) bool {
	return func(phases map[string]v1alpha1.MachinePhase) bool {
		n := 0
		for _, phase := range phases {
			if phase == v1alpha1.MachineRunning {
				n++
			}
		}
		return n == desired
	}
}

func gone(phases map[string]v1alpha1.MachinePhase) bool { return len(phases) == 0 }

// timed starts the work and measures until the end, with a watch, which causes the least load.
func timed(
	ctx context.Context, lab *harness.Lab, namespace string, end func(map[string]v1alpha1.MachinePhase) bool, begin func() error,
) (pair, error) {
	api := lab.Machines.MachineV1alpha1().Machines(namespace)
	list, err := api.List(ctx, metav1.ListOptions{})
	if err != nil {
		return pair{}, fmt.Errorf("list machines: %w", err)
	}
	phases := map[string]v1alpha1.MachinePhase{}
	for _, m := range list.Items {
		phases[m.Name] = m.Status.CurrentStatus.Phase
	}
	watcher, err := harness.Watch(ctx, list.ResourceVersion, api.Watch)
	if err != nil {
		return pair{}, err
	}
	defer watcher.Stop()
	start := time.Now()
	if err := begin(); err != nil {
		return pair{}, err
	}
	for {
		select {
		case <-ctx.Done():
			return pair{}, fmt.Errorf("%w: machines by phase: %v", ctx.Err(), byPhase(phases))
		case event, open := <-watcher.ResultChan():
			if !open {
				return pair{}, fmt.Errorf("the watch of machines has ended early")
			}
			m, ok := event.Object.(*v1alpha1.Machine)
			if !ok {
				return pair{}, fmt.Errorf("watch machines: got %T", event.Object)
			}
			if phases[m.Name] = m.Status.CurrentStatus.Phase; event.Type == watch.Deleted {
				delete(phases, m.Name)
			}
			if end(phases) {
				return pair{value: time.Since(start).Seconds()}, nil
			}
		}
	}
}

func byPhase(phases map[string]v1alpha1.MachinePhase) map[v1alpha1.MachinePhase]int {
	counts := map[v1alpha1.MachinePhase]int{}
	for _, phase := range phases {
		counts[phase]++
	}
	return counts
}
