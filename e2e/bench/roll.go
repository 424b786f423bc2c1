package main

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
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

// measureRolls has all machines replaced one after the other, in each MachineDeployment at the same time.
func measureRolls(ctx context.Context, lab *harness.Lab, s sample) error {
	if err := rebalanced(ctx, lab); err != nil { // slots that move have everything of them listed anew
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	namespace := fmt.Sprintf("roll-%d", os.Getpid())
	if err := lab.Prepare(ctx, namespace, ""); err != nil {
		return err
	}
	api := lab.Machines.MachineV1alpha1()
	if _, err := timed(ctx, lab, namespace, running, func() error { return deploy(ctx, lab, namespace) }); err != nil {
		return err
	}
	if err := pause(ctx, 5*settled); err != nil {
		return err
	}
	mark, err := lab.MarkAudit()
	if err != nil {
		return err
	}
	if s["roll_100_seconds"], err = timeRoll(ctx, lab, namespace); err != nil {
		return err
	}
	if err := pause(ctx, 5*settled); err != nil { // all that is written late is counted with what it belongs to
		return err
	}
	if err := countRoll(lab, mark, s); err != nil {
		return err
	}
	if err := api.MachineDeployments(namespace).DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{}); err != nil {
		return fmt.Errorf("delete MachineDeployments: %w", err)
	}
	return lab.Running(ctx, namespace, 0)
}

// deploy makes the MachineDeployments, one machine beyond theirs allowed and none missing.
func deploy(ctx context.Context, lab *harness.Lab, namespace string) error {
	one, none := intstr.FromInt32(1), intstr.FromInt32(0)
	for i := range deployments {
		d := harness.Deployment(namespace, fmt.Sprintf("md-%d", i), machines)
		d.Spec.Strategy = v1alpha1.MachineDeploymentStrategy{
			Type: v1alpha1.RollingUpdateMachineDeploymentStrategyType,
			RollingUpdate: &v1alpha1.RollingUpdateMachineDeployment{
				UpdateConfiguration: v1alpha1.UpdateConfiguration{MaxSurge: &one, MaxUnavailable: &none},
			},
		}
		if _, err := lab.Machines.MachineV1alpha1().MachineDeployments(namespace).Create(ctx, d, metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("create MachineDeployment: %w", err)
		}
	}
	return nil
}

// timeRoll changes all templates, and measures until all machines are of the new one and run.
func timeRoll(ctx context.Context, lab *harness.Lab, namespace string) (pair, error) {
	api := lab.Machines.MachineV1alpha1()
	list, err := api.Machines(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return pair{}, fmt.Errorf("list machines: %w", err)
	}
	watcher, err := harness.Watch(ctx, list.ResourceVersion, api.Machines(namespace).Watch)
	if err != nil {
		return pair{}, err
	}
	defer watcher.Stop()
	left, run := map[string]bool{}, map[string]bool{}
	for _, m := range list.Items {
		left[m.Name] = true
	}
	start := time.Now()
	for i := range deployments {
		patch := fmt.Appendf(nil, `{"spec":{"template":{"metadata":{"annotations":{%q:"yes"}}}}}`, rolled)
		if _, err := api.MachineDeployments(namespace).Patch(ctx, fmt.Sprintf("md-%d", i), types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
			return pair{}, fmt.Errorf("change the template: %w", err)
		}
	}
	for len(left) > 0 || len(run) < total {
		select {
		case <-ctx.Done():
			return pair{}, fmt.Errorf("%w: %d new machines run, and %d old ones are left", ctx.Err(), len(run), len(left))
		case event, open := <-watcher.ResultChan():
			m, ok := event.Object.(*v1alpha1.Machine)
			switch {
			case !open || !ok:
				return pair{}, fmt.Errorf("the watch of machines has ended early: %v", event)
			case event.Type == watch.Deleted:
				delete(left, m.Name)
			case m.Annotations[rolled] != "" && m.Status.CurrentStatus.Phase == v1alpha1.MachineRunning:
				run[m.Name] = true
			}
		}
	}
	return pair{value: time.Since(start).Seconds()}, nil
}

// countRoll counts requests by machine, and tells which they were.
func countRoll(lab *harness.Lab, mark harness.AuditMark, s sample) error {
	requests, err := lab.Requests(mark)
	if err != nil {
		return err
	}
	rows := map[string]float64{}
	kinds := map[string]int{}
	for _, r := range requests {
		isRead := r.Verb == "get" || r.Verb == "list"
		if !isRead && !r.IsWrite() || r.Resource == "leases" || r.Resource == "events" || strings.HasPrefix(r.User, "system:node:") {
			continue
		}
		what := "reads"
		if r.IsWrite() {
			what = "writes"
		}
		switch {
		case r.IsFleet() && r.IsToken() && r.IsWrite():
			rows["roll_token_writes_per_machine"]++
		case r.IsFleet():
			rows["roll_"+what+"_per_machine"]++
		}
		rows["roll_all_"+what+"_per_machine"]++
		user := "others"
		if r.IsFleet() {
			user = "fleet"
		}
		kinds[fmt.Sprintf("%s %s %s/%s %d", user, r.Verb, r.Resource, r.Subresource, r.Code)]++
	}
	for name, n := range rows {
		s[name] = pair{value: n / total}
	}
	for _, kind := range slices.SortedFunc(maps.Keys(kinds), func(a, b string) int { return cmp.Compare(kinds[b], kinds[a]) }) {
		fmt.Printf("  %6.2f  %s\n", float64(kinds[kind])/total, kind)
	}
	return nil
}
