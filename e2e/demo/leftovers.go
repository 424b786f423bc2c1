package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/driver/simulated/cloudapi"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/chaos/check"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/harness"
)

// finding is the remaining objects of one kind, of which none should be left.
type finding struct {
	// Kind in the plural, and a remark on the evidence.
	Kind, Remark string
	// Left are the names of what is left.
	Left []string
}

// leftovers searches for all objects that the fleet or its user has created.
func leftovers(ctx context.Context, lab *harness.Lab) ([]finding, error) {
	api := lab.Machines.MachineV1alpha1()
	core := lab.Target.CoreV1()
	deployments, errDeployments := api.MachineDeployments(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
	sets, errSets := api.MachineSets(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
	machines, errMachines := api.Machines(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
	classes, errClasses := api.MachineClasses(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
	nodes, errNodes := core.Nodes().List(ctx, metav1.ListOptions{})
	tokens, errTokens := core.Secrets(metav1.NamespaceSystem).List(ctx, metav1.ListOptions{FieldSelector: "type=" + string(corev1.SecretTypeBootstrapToken)})
	vms, errVMs := lab.Cloud.AllVMs(ctx)
	calls, errCalls := lab.Cloud.Calls()
	if err := errors.Join(errDeployments, errSets, errMachines, errClasses, errNodes, errTokens, errVMs, errCalls); err != nil {
		return nil, fmt.Errorf("check for leftovers: %w", err)
	}
	left, twice := vmsLeft(vms)
	report := check.Check(check.History{Calls: calls})
	return []finding{
		{Kind: "MachineDeployments", Left: names(deployments.Items)},
		{Kind: "MachineSets", Left: names(sets.Items)},
		{Kind: "Machines", Left: names(machines.Items)},
		{Kind: "MachineClasses", Left: names(classes.Items)},
		{Kind: "Nodes", Left: names(nodes.Items)},
		{Kind: "bootstrap tokens", Left: names(tokens.Items)},
		{Kind: "VMs at the cloud", Remark: fmt.Sprintf("%d were made, %d have ended", len(vms), len(vms)-len(left)), Left: left},
		{Kind: "machines with a second VM", Left: twice},
		{Kind: "calls to the cloud that had an effect twice, or under no slot", Remark: fmt.Sprintf("%d by %s", report.Calls, several(report.Sessions, "session")), Left: report.Faults},
	}, nil
}

// vmsLeft are the VMs that have not ended, and the names of machines for which more than one was made.
func vmsLeft(vms []cloudapi.Instance) (left, twice []string) {
	made := map[string]int{}
	for _, v := range vms {
		if v.State != cloudapi.StateTerminated {
			left = append(left, v.ID)
		}
		if made[v.Name]++; made[v.Name] == 2 {
			twice = append(twice, v.Name)
		}
	}
	return left, twice
}

// names are those of a list's objects.
func names[T any, P interface {
	*T
	metav1.Object
}](items []T) []string {
	var all []string
	for i := range items {
		all = append(all, P(&items[i]).GetName())
	}
	return all
}

// anyLeft returns an error that names what is left.
func anyLeft(findings []finding) error {
	var errs []error
	for _, f := range findings {
		if len(f.Left) > 0 {
			errs = append(errs, fmt.Errorf("there are %s: %s", f.Kind, strings.Join(f.Left, ", ")))
		}
	}
	return errors.Join(errs...)
}

// verdicts show findings.
func verdicts(k ink, findings []finding) []string {
	var lines []string
	for _, f := range findings {
		line := k.green("✓") + " no " + f.Kind
		if len(f.Left) > 0 {
			line = fmt.Sprintf("%s %d %s", k.red("✗"), len(f.Left), f.Kind)
		}
		if f.Remark != "" {
			line += k.dim(" (" + f.Remark + ")")
		}
		lines = append(lines, margin+line)
	}
	return lines
}
