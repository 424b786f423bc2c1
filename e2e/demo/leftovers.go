package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/chaos/check"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/harness"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/simulated/cloudapi"
)

// finding is the remaining objects of one kind, of which none should be left.
type finding struct {
	// Kind in the plural, and a remark on the evidence.
	Kind, Note string
	// Remaining are the names of what remains.
	Remaining []string
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
	tokens, errTokens := core.Secrets(metav1.NamespaceSystem).
		List(ctx, metav1.ListOptions{FieldSelector: "type=" + string(corev1.SecretTypeBootstrapToken)})
	configs, errConfigs := configurations(ctx, lab)
	vms, errVMs := lab.Cloud.AllVMs(ctx)
	calls, errCalls := lab.Cloud.Calls()
	if err := errors.Join(errDeployments, errSets, errMachines, errClasses, errNodes, errTokens, errConfigs, errVMs, errCalls); err != nil {
		return nil, fmt.Errorf("check for leftovers: %w", err)
	}
	remaining, twice := remainingVMs(vms)
	report := check.Check(check.History{Calls: calls})
	return []finding{
		{Kind: "MachineDeployments", Remaining: names(deployments.Items)},
		{Kind: "MachineSets", Remaining: names(sets.Items)},
		{Kind: "Machines", Remaining: names(machines.Items)},
		{Kind: "MachineClasses", Remaining: names(classes.Items)},
		{Kind: "Nodes", Remaining: names(nodes.Items)},
		{Kind: "bootstrap tokens", Remaining: names(tokens.Items)},
		{Kind: "objects of machine configuration", Remaining: configs},
		{Kind: "VMs at the cloud", Note: fmt.Sprintf("%d were created, %d have ended", len(vms), len(vms)-len(remaining)), Remaining: remaining},
		{Kind: "machines with a second VM", Remaining: twice},
		{
			Kind:      "calls to the cloud that had an effect twice, or under no slot",
			Note:      fmt.Sprintf("%d by %s", report.Calls, several(report.Sessions, "session")),
			Remaining: report.Faults,
		},
	}, nil
}

// configurations returns the names of all objects of machine configuration.
func configurations(ctx context.Context, lab *harness.Lab) ([]string, error) {
	api, all := lab.Configs, metav1.ListOptions{}
	configs, errConfigs := api.MachineConfigs().List(ctx, all)
	pools, errPools := api.MachineConfigPools().List(ctx, all)
	settings, errSettings := api.KubeletConfigs().List(ctx, all)
	rendered, errRendered := api.RenderedMachineConfigs().List(ctx, all)
	if err := errors.Join(errConfigs, errPools, errSettings, errRendered); err != nil {
		return nil, err
	}
	return slices.Concat(names(configs.Items), names(pools.Items), names(settings.Items), names(rendered.Items)), nil
}

// remainingVMs are the VMs that have not ended, and the names of machines for which more than one
// was created.
func remainingVMs(vms []cloudapi.Instance) (remaining, twice []string) {
	created := map[string]int{}
	for _, v := range vms {
		if v.State != cloudapi.StateTerminated {
			remaining = append(remaining, v.ID)
		}
		if created[v.Name]++; created[v.Name] == 2 {
			twice = append(twice, v.Name)
		}
	}
	return remaining, twice
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

// anyRemaining returns an error that names what remains.
func anyRemaining(findings []finding) error {
	var errs []error
	for _, f := range findings {
		if len(f.Remaining) > 0 {
			errs = append(errs, fmt.Errorf("there are %s: %s", f.Kind, strings.Join(f.Remaining, ", ")))
		}
	}
	return errors.Join(errs...)
}

// verdicts show findings.
func verdicts(k ink, findings []finding) []string {
	var lines []string
	for _, f := range findings {
		line := k.green("✓") + " no " + f.Kind
		if len(f.Remaining) > 0 {
			line = fmt.Sprintf("%s %d %s", k.red("✗"), len(f.Remaining), f.Kind)
		}
		if f.Note != "" {
			line += k.dim(" (" + f.Note + ")")
		}
		lines = append(lines, margin+line)
	}
	return lines
}
