package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/harness"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/simulated/cloudapi"
)

// maxOfAKind is how many reasons of one kind are printed at most.
const maxOfAKind = 8

// reasons returns what the lab reports that may explain why a goal was missed.
func reasons(ctx context.Context, lab *harness.Lab) []string {
	var all []string
	for _, look := range []func(context.Context, *harness.Lab) ([]string, error){
		conditionReasons, machineReasons, vmReasons, podReasons, eventReasons,
	} {
		found, err := look(ctx, lab)
		if err != nil {
			found = []string{err.Error()}
		}
		all = append(all, atMost(maxOfAKind, found)...)
	}
	return all
}

// atMost truncates a list, and appends the number of what it cut.
func atMost(n int, lines []string) []string {
	if len(lines) <= n {
		return lines
	}
	return append(slices.Clip(lines[:n]), fmt.Sprintf("… and %d more like these", len(lines)-n))
}

// goodConditions are those that report a problem when they are not True; all others report one when
// they are.
var goodConditions = []v1alpha1.MachineDeploymentConditionType{
	v1alpha1.MachineDeploymentAvailable, v1alpha1.MachineDeploymentProgressing, v1alpha1.MachineDeploymentValid,
}

func conditionReasons(ctx context.Context, lab *harness.Lab) ([]string, error) {
	list, err := lab.Machines.MachineV1alpha1().MachineDeployments(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list MachineDeployments: %w", err)
	}
	var lines []string
	for _, d := range list.Items {
		for _, c := range d.Status.Conditions {
			if good := slices.Contains(goodConditions, c.Type); good == (c.Status == corev1.ConditionTrue) {
				continue
			}
			lines = append(lines, fmt.Sprintf("MachineDeployment %s: %s is %s (%s): %s", d.Name, c.Type, c.Status, c.Reason, c.Message))
		}
	}
	return lines, nil
}

func machineReasons(ctx context.Context, lab *harness.Lab) ([]string, error) {
	list, err := lab.Machines.MachineV1alpha1().Machines(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list Machines: %w", err)
	}
	var lines []string
	for _, m := range list.Items {
		if m.Status.CurrentStatus.Phase != v1alpha1.MachineRunning {
			lines = append(lines, machineReason(m))
		}
	}
	return lines, nil
}

func machineReason(m v1alpha1.Machine) string {
	last := m.Status.LastOperation
	line := fmt.Sprintf("Machine %s: %s", m.Name, cmp.Or(string(m.Status.CurrentStatus.Phase), "new"))
	if last.Type != "" {
		line += fmt.Sprintf("; %s %s: %s", last.Type, last.State, last.Description)
	}
	if last.ErrorCode != "" {
		line += " (" + last.ErrorCode + ")"
	}
	return line
}

// vmReasons are the last lines on the consoles of VMs that have no Node.
func vmReasons(ctx context.Context, lab *harness.Lab) ([]string, error) {
	vms, err := lab.Cloud.AllVMs(ctx)
	if err != nil {
		return nil, err
	}
	nodes, err := observeNodes(ctx, lab)
	if err != nil {
		return nil, err
	}
	joined := map[string]bool{}
	for _, n := range nodes {
		joined[n.Name] = true
	}
	var lines []string
	for _, v := range vms {
		if v.State != cloudapi.StateTerminated && !joined[v.Name] {
			lines = append(lines, vmReason(v))
		}
	}
	return lines, nil
}

func vmReason(v cloudapi.Instance) string {
	last := "nothing on its console"
	if len(v.Console) > 0 {
		last = v.Console[len(v.Console)-1]
	}
	return fmt.Sprintf("VM %s (%s, %s): %s", v.ID, v.Name, v.State, last)
}

func podReasons(ctx context.Context, lab *harness.Lab) ([]string, error) {
	list, err := lab.Target.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list pods: %w", err)
	}
	var lines []string
	for _, p := range list.Items {
		if p.Status.Phase != corev1.PodRunning || p.DeletionTimestamp != nil {
			lines = append(lines, podReason(p))
		}
	}
	return lines, nil
}

func podReason(p corev1.Pod) string {
	words := []string{fmt.Sprintf("pod %s on %s: %s", p.Name, cmp.Or(p.Spec.NodeName, "no Node"), p.Status.Phase)}
	if p.DeletionTimestamp != nil {
		words = append(words, "being deleted")
	}
	for _, c := range p.Status.Conditions {
		if c.Status != corev1.ConditionTrue && c.Message != "" {
			words = append(words, c.Message)
		}
	}
	for _, c := range p.Status.ContainerStatuses {
		if w := c.State.Waiting; w != nil {
			words = append(words, w.Reason+" "+w.Message)
		}
	}
	return strings.Join(words, "; ")
}

// eventReasons are the latest warnings, the last one first.
func eventReasons(ctx context.Context, lab *harness.Lab) ([]string, error) {
	list, err := lab.Control.CoreV1().Events(metav1.NamespaceAll).
		List(ctx, metav1.ListOptions{FieldSelector: "type=" + corev1.EventTypeWarning})
	if err != nil {
		return nil, fmt.Errorf("list Events: %w", err)
	}
	slices.SortStableFunc(list.Items, func(a, b corev1.Event) int { return eventTime(b).Compare(eventTime(a).Time) })
	var lines []string
	for _, e := range list.Items {
		lines = append(lines, fmt.Sprintf("Event %s on %s %s: %s", e.Reason, e.InvolvedObject.Kind, e.InvolvedObject.Name, e.Message))
	}
	return lines, nil
}

// eventTime is when an event happened last; which field has it depends on the API that it was
// reported through.
func eventTime(e corev1.Event) metav1.Time {
	if !e.LastTimestamp.IsZero() {
		return e.LastTimestamp
	}
	return metav1.Time(e.EventTime)
}
