package main

import (
	"context"
	"fmt"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/harness"
)

// allServed waits until every slot is served at some replica since start, and returns how long that
// took.
func allServed(ctx context.Context, lab *harness.Lab, start time.Time) (took time.Duration, err error) {
	ctx, cancel := context.WithTimeout(ctx, harness.Standstill)
	defer cancel()
	inUse, err := slotsInUse(ctx, lab)
	if err != nil {
		return 0, err
	}
	err = harness.Eventually(ctx, "every slot is served", func(ctx context.Context) error {
		replicas, err := lab.Replicas(ctx)
		if err != nil {
			return err
		}
		var views []harness.SlotsView
		for _, replica := range replicas {
			if view, err := lab.Slots(ctx, replica); err == nil { // else it is the one that was killed
				views = append(views, view)
			}
		}
		last, err := lastServed(views, inUse, start)
		took = last.Sub(start)
		return err
	})
	return took, err
}

// lastServed returns when the last slot was served: when all its objects were known and, if it has
// MachineDeployments, the first pass over one of its objects had ended. Errors: a slot that is not
// served yet.
func lastServed(views []harness.SlotsView, inUse map[int]bool, start time.Time) (last time.Time, err error) {
	last = start
	served := map[int]bool{}
	for _, view := range views {
		for _, here := range view.Here {
			at := here.Opened
			if inUse[here.Slot] {
				at = here.Served
			}
			if !here.Open || at.IsZero() {
				continue
			}
			served[here.Slot] = true
			if at.After(last) {
				last = at
			}
		}
	}
	if len(served) != slots {
		return last, fmt.Errorf("%d of %d are", len(served), slots)
	}
	return last, nil
}

// slotsInUse are those that have MachineDeployments, and so keys for passes.
func slotsInUse(ctx context.Context, lab *harness.Lab) (map[int]bool, error) {
	list, err := lab.Machines.MachineV1alpha1().MachineDeployments(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list MachineDeployments: %w", err)
	}
	inUse := map[int]bool{}
	for _, d := range list.Items {
		slot, err := strconv.Atoi(d.Labels[v1alpha1.LabelSlot])
		if err != nil {
			return nil, fmt.Errorf("slot label of %s/%s: %w", d.Namespace, d.Name, err)
		}
		inUse[slot] = true
	}
	return inUse, nil
}
