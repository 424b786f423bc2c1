package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/harness"
)

// rolled marks the template that machines are rolled to.
const rolled = "rolled"

// rollTimeout bounds one roll, with the creation and deletion of its machines.
const rollTimeout = 10 * time.Minute

// load is the load that is rolled: so many MachineDeployments of so many machines each. None of the
// machines may be unavailable.
type load struct {
	deployments, machines int
	surge                 intstr.IntOrString
}

func (l load) total() int { return l.deployments * l.machines }

// rolling records what was observed of a roll.
type rolling struct {
	// ran and gone are when the new machines first ran and the old ones were gone, since the templates
	// were changed.
	ran, gone []time.Duration
	// requests are those to the API servers since then, including late ones.
	requests []harness.Request
}

// rollIn creates the load in a separate namespace, rolls it, and deletes it.
func (l load) rollIn(ctx context.Context, lab *harness.Lab, namespace string) (*rolling, error) {
	if err := rebalanced(ctx, lab); err != nil { // a slot that moves causes a new list of its objects
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, rollTimeout)
	defer cancel()
	if err := lab.Prepare(ctx, namespace, ""); err != nil {
		return nil, err
	}
	if _, err := timed(ctx, lab, namespace, run(l.total()), func() error { return l.deploy(ctx, lab, namespace) }); err != nil {
		return nil, err
	}
	if err := pause(ctx, 5*settled); err != nil {
		return nil, err
	}
	position, err := lab.AuditEnd()
	if err != nil {
		return nil, err
	}
	r, err := l.roll(ctx, lab, namespace)
	if err != nil {
		return nil, err
	}
	if err := pause(ctx, 5*settled); err != nil { // late writes are counted with the roll that caused them
		return nil, err
	}
	if r.requests, err = lab.Requests(position); err != nil {
		return nil, err
	}
	_, err = timed(ctx, lab, namespace, gone, func() error {
		return lab.Machines.MachineV1alpha1().MachineDeployments(namespace).DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{})
	})
	return r, err
}

// deploy creates the MachineDeployments.
func (l load) deploy(ctx context.Context, lab *harness.Lab, namespace string) error {
	none := intstr.FromInt32(0)
	for i := range l.deployments {
		d := harness.Deployment(namespace, fmt.Sprintf("md-%d", i), int32(l.machines))
		d.Spec.Strategy = v1alpha1.MachineDeploymentStrategy{
			Type: v1alpha1.RollingUpdateMachineDeploymentStrategyType,
			RollingUpdate: &v1alpha1.RollingUpdateMachineDeployment{
				UpdateConfiguration: v1alpha1.UpdateConfiguration{MaxSurge: &l.surge, MaxUnavailable: &none},
			},
		}
		if _, err := lab.Machines.MachineV1alpha1().MachineDeployments(namespace).Create(ctx, d, metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("create MachineDeployment: %w", err)
		}
	}
	return nil
}

// roll changes all templates, and watches until all machines are of the new one and run, and no old
// one is left.
func (l load) roll(ctx context.Context, lab *harness.Lab, namespace string) (*rolling, error) {
	api := lab.Machines.MachineV1alpha1()
	list, err := api.Machines(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list machines: %w", err)
	}
	watcher, err := harness.Watch(ctx, list.ResourceVersion, api.Machines(namespace).Watch)
	if err != nil {
		return nil, err
	}
	defer watcher.Stop()
	remaining, runs := map[string]bool{}, map[string]bool{}
	for _, m := range list.Items {
		remaining[m.Name] = true
	}
	r, start := &rolling{}, time.Now()
	patch := fmt.Appendf(nil, `{"spec":{"template":{"metadata":{"annotations":{%q:"yes"}}}}}`, rolled)
	for i := range l.deployments {
		if _, err := api.MachineDeployments(namespace).Patch(ctx, fmt.Sprintf("md-%d", i), types.MergePatchType, patch,
			metav1.PatchOptions{}); err != nil {
			return nil, fmt.Errorf("change the template: %w", err)
		}
	}
	for len(remaining) > 0 || len(runs) < l.total() {
		m, isGone, err := next(ctx, watcher)
		if err != nil {
			return nil, fmt.Errorf("%d new machines run, and %d old ones are left: %w", len(runs), len(remaining), err)
		}
		switch {
		case isGone && remaining[m.Name]:
			delete(remaining, m.Name)
			r.gone = append(r.gone, time.Since(start))
		case !isGone && !runs[m.Name] && m.Annotations[rolled] != "" && m.Status.CurrentStatus.Phase == v1alpha1.MachineRunning:
			runs[m.Name] = true
			r.ran = append(r.ran, time.Since(start))
		}
	}
	return r, nil
}

// next waits for the next event of a machine.
func next(ctx context.Context, watcher watch.Interface) (m *v1alpha1.Machine, isGone bool, err error) {
	select {
	case <-ctx.Done():
		return nil, false, ctx.Err()
	case event, open := <-watcher.ResultChan():
		m, ok := event.Object.(*v1alpha1.Machine)
		if !open {
			return nil, false, errors.New("the watch of machines has ended early")
		}
		if !ok {
			return nil, false, fmt.Errorf("watch machines: got %T", event.Object)
		}
		return m, event.Type == watch.Deleted, nil
	}
}
